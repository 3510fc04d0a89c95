"""Facts of a connection, and who is past a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgshoal.engine.contract import ConnFacts
from pgshoal.engine.python.conn import CLOSING, IDLE, LINKED, LINKING, PARKED, WAITING, Client, Conn, Server
from pgshoal.engine.python.frames import CLOSING_LIMIT_US

if TYPE_CHECKING:
    from pgshoal.engine.python.core import Core


def facts(conn: Conn) -> ConnFacts:
    """How a connection stands."""
    joined = conn.mode is LINKED or conn.mode is LINKING
    server = conn if isinstance(conn, Server) else conn.link if isinstance(conn, Client) else None
    partner = conn.link if isinstance(conn, Client | Server) and joined else None
    request_us = 0
    if joined and server is not None:
        request_us = server.query_us
    elif isinstance(conn, Client) and conn.mode is WAITING:
        request_us = conn.wait_us
    return ConnFacts(
        mode=conn.mode,
        link=partner.id if partner is not None and conn.mode is LINKED else 0,
        last_activity_us=conn.last_us,
        request_us=request_us,
        status=server.status if server is not None and (joined or conn.mode is IDLE) else "",
        queue_length=len(server.queue) if joined and server is not None else 0,
        prepared_statements=len(conn.prepared) if isinstance(conn, Client) else len(conn.cache),  # type: ignore[attr-defined]
        recv_pending=len(conn.inbuf),
        send_pending=conn.out_size,
        idle_since_us=conn.idle_us if isinstance(conn, Server) and conn.mode is IDLE else 0,
        decide=conn.decide if isinstance(conn, Server) else False,
    )


def overdue(core: Core, now: int) -> list[tuple[int, str]]:
    """Every client past a limit, once; connections that have been closing for too long are dropped."""
    core.announce_silent()
    found: list[tuple[int, str]] = []
    for conn in list(core.conns.values()):
        if conn.mode is CLOSING:
            if now - conn.closing_us >= CLOSING_LIMIT_US:
                core.forget(conn)
        elif isinstance(conn, Client):
            key = _linked(conn, now) if conn.link is not None else _unlinked(core, conn, now)
            if key:
                found.append((conn.id, key))
    return found


def _past(since: int, limit: int, now: int) -> bool:
    return bool(limit > 0 and now - since > limit)


def _linked(client: Client, now: int) -> str:
    server = client.link
    assert server is not None
    pool = server.pool
    assert pool is not None
    spec = pool.spec
    if client.mode is not LINKED:
        return ""
    if server.queue and _past(server.query_us, spec.query_timeout_us, now):
        return "query_timeout"
    # A release that waits for the rest of a client's message keeps the server as a block does.
    half = pool.pooled and client.skip and client.forwarding and not server.busy and not client.errored
    kept = not server.queue and (half or server.status != "I")
    if kept and _past(server.last_us, spec.idle_transaction_timeout_us, now):
        return "idle_transaction_timeout"
    if server.xact_us and _past(server.xact_us, spec.transaction_timeout_us, now):
        return "transaction_timeout"
    return ""


def _unlinked(core: Core, client: Client, now: int) -> str:
    pool = client.pool
    if pool is None:
        return ""
    if client.mode is PARKED:
        return "client_idle_timeout" if _past(client.last_us, client.idle_limit_us, now) else ""
    if client.mode is not WAITING:
        return ""
    own = client.wait_limit_us
    if _past(client.wait_us, pool.spec.query_wait_timeout_us if own < 0 else own, now):
        return "query_wait_timeout"
    if _past(client.wait_us, core.limits.queued_query_timeout_us, now):
        return "query_timeout_queued"
    if not client.notified and _past(client.wait_us, pool.spec.query_wait_notify_us, now):
        client.notified = True
        return "query_wait_notify"
    return ""


def memory(core: Core) -> list[tuple[str, int, int, int]]:
    """SHOW MEM rows: (name, size, used, free)."""
    clients = sum(1 for conn in core.conns.values() if not conn.is_server)
    servers = len(core.conns) - clients
    buffers = sum(len(conn.inbuf) + conn.out_size for conn in core.conns.values())
    return [
        ("client_cache", 560, clients, 0),
        ("server_cache", 680, servers, 0),
        ("pool_cache", 400, len(core.pools), 0),
        ("iobuf_cache", 1, buffers, 0),
        ("prepared_statement_cache", 120, len(core.store), 0),
    ]
