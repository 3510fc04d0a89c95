"""`http_listen`: an HTTP page in the supervisor with `/metrics` for Prometheus and `/health` for balancers."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from pgshoal.console.merge import gathered, merge
from pgshoal.console.tables import TABLES
from pgshoal.fleet.pidfile import Fatal
from pgshoal.metrics.families import SOURCES

if TYPE_CHECKING:
    from aiohttp import web

    from pgshoal.fleet.supervisor import Supervisor
    from pgshoal.metrics.exposition import Found

_PLAIN: Final = "text/plain"
_BACKLOG: Final = 64


def listen(address: str) -> socket.socket:
    """The listening socket of `host:port`; an empty host or `*` is every address. Fatal names the setting."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if host in ("", "*"):
            return socket.create_server(("", int(port)), backlog=_BACKLOG)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise Fatal(f"http_listen: cannot listen on {address}: {error.strerror or error}") from error


class Page:
    """Serves until `close`. Scrapes that come at once share one look at the workers."""

    def __init__(self, supervisor: Supervisor, sock: socket.socket) -> None:
        try:
            from aiohttp import web

            from pgshoal.metrics.exposition import render
        except ImportError as error:
            sock.close()
            raise Fatal(f"http_listen: {error.name} is not installed: pip install 'pgshoal[metrics]'") from error
        self._fleet = supervisor
        self._render = render
        self._looking: asyncio.Task[Found] | None = None
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/health", self._health)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)
        self._web = web
        supervisor.loop.run_until_complete(self._begin(sock))

    async def _begin(self, sock: socket.socket) -> None:
        await self._runner.setup()
        await self._web.SockSite(self._runner, sock).start()

    def close(self) -> None:
        """Nobody is answered any more."""
        self._fleet.loop.run_until_complete(self._runner.cleanup())

    async def _health(self, request: web.Request) -> web.Response:
        whole = self._fleet.is_whole()
        text = "ok\n" if whole else "not all workers serve, or the pooler is shutting down\n"
        return self._web.Response(text=text, status=200 if whole else 503, content_type=_PLAIN)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._looking is None:
            self._looking = self._fleet.loop.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        found = await asyncio.shield(self._looking)
        body, content_type = self._render(found, request.headers.get("Accept", ""))
        return self._web.Response(body=body, headers={"Content-Type": content_type})

    def _looked(self, task: asyncio.Task[Found]) -> None:
        self._looking = None

    async def _look(self) -> Found:
        from pgshoal.metrics.exposition import Found

        answers = await asyncio.gather(*(self._gather(what) for what in SOURCES))
        rows = {what: merge(TABLES[what], gathered((), answer)) for what, answer in zip(SOURCES, answers, strict=True)}
        return Found(rows, max(len(answer["missing"]) for answer in answers))

    async def _gather(self, what: str) -> dict[str, Any]:
        heard: asyncio.Future[dict[str, Any]] = self._fleet.loop.create_future()

        def hear(answer: dict[str, Any]) -> None:
            if not heard.done():  # at the end of the fleet nobody waits any more
                heard.set_result(answer)

        self._fleet.relay.gather(what, None, hear)
        return await heard
