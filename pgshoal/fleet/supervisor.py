"""The supervisor: keeps one worker process for each number, and tells its parts what becomes of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pgshoal.config.model import Config
from pgshoal.fleet.balance import Letterboxes
from pgshoal.fleet.cancels import Cancels
from pgshoal.fleet.channel import Channel, Message
from pgshoal.fleet.children import Child, Part
from pgshoal.fleet.cpus import affinity, usable_cpus
from pgshoal.fleet.foresight import Foresight
from pgshoal.fleet.hygiene import end_tasks
from pgshoal.fleet.ledger import Ledger
from pgshoal.fleet.lending import Lending
from pgshoal.fleet.listening import Listening, Sockets
from pgshoal.fleet.moves import Moves
from pgshoal.fleet.notify import notify
from pgshoal.fleet.pulse import Pulse
from pgshoal.fleet.relay import Relay
from pgshoal.fleet.rolling import DEADLINE_S, Done, Rolling
from pgshoal.fleet.spawn import spawn
from pgshoal.fleet.undertaker import Undertaker
from pgshoal.fleet.upgrade import Upgrade
from pgshoal.worker.log import Log

if TYPE_CHECKING:
    from pgshoal.fleet.takeover import Estate

#: Seven bits of a cancel key.
SEATS_MAX: Final = 127
#: A worker that lives less than this, or never serves, is replaced after a pause, which doubles.
YOUNG_S: Final = 1.0
PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 10.0
#: A channel that ended, or a `stop`, must be followed by the end of the process.
END_LIMIT_S: Final = 5.0
_ENDED: Final[Mapping[str, str]] = {
    "clients": "client connections dropped, exiting",
    "servers": "server connections dropped, exiting",
}


@dataclass(slots=True, eq=False)
class Post:
    """What a number is to the supervisor: who serves it now, who will, and how often that has failed."""

    number: int
    child: Child | None = None
    successor: Child | None = None
    pause_s: float = 0.0
    restarts: int = 0
    timer: asyncio.TimerHandle | None = None


class Supervisor:
    """Runs on one asyncio loop. `run.py` makes it, gives it parts, and calls `begin`."""

    def __init__(
        self,
        config: Config,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        overrides: Mapping[str, str] | None = None,
        quiet: bool = False,
        estate: Estate | None = None,
    ) -> None:
        """`estate`: what a program of the same process has left; `upgrade.adopt` must follow."""
        settings = config.settings
        self.config = config
        self.log = log
        self.loop = loop
        self.overrides = dict(overrides or {})
        self.quiet = quiet
        self.workers = estate["workers"] if estate else settings.workers or usable_cpus()
        self.cpus = affinity(settings.worker_cpu_affinity, self.workers)
        if estate:
            self.ledger = Ledger.attach(estate["ledger"], estate["bells"], -1)
        else:
            self.ledger = Ledger.create(min(2 * self.workers + 2, SEATS_MAX))
        self.ledger.set_fleet(self.workers, settings.budget == "static")
        self.sockets = Sockets(self.workers, log)
        self.key_secret = os.urandom(32)
        #: what `boot` tells a new worker; parts keep it up to date
        self.state: dict[str, Any] = {
            "paused": False,
            "paused_databases": [],
            "disabled_databases": [],
            "welcomes": [],
            "shutdown": "",
        }
        self.children: list[Child] = []
        self.posts = [Post(number) for number in range(self.workers)]
        self.generation = 0
        self.up = False
        self.exit_code: int | None = None
        #: called once, when every number has had a worker that serves
        self.on_up: Callable[[], None] = lambda: None
        self._empty: set[Child] = set()
        #: processes of ours that are no workers
        self.assistants: set[int] = set()
        self.undertaker = Undertaker(self)
        self.letterboxes = Letterboxes(self)
        self.cancels = Cancels(self)
        self.relay = Relay(self)
        self.moves = Moves(self)
        self.parts: list[Part] = [self.undertaker, self.letterboxes, self.cancels, self.relay, self.moves]
        self.foresight = Foresight(self)
        self.relay.reconfigure.on_commit = self._committed
        self.lending = Lending(self)
        self.pulse = Pulse(self)
        self.rolling = Rolling(self)
        self.upgrading = Upgrade(self)

    def _committed(self) -> None:
        """A new configuration is in effect."""
        self.ledger.set_fleet(self.workers, self.config.settings.budget == "static")
        self.foresight.look()

    # -- who is there

    def worker_for(self, seat: int) -> Child | None:
        """The process in a seat."""
        return next((child for child in self.children if child.seat == seat), None)

    def heirs(self, seat: int) -> list[Child]:
        """Those to whom clients of the seat have moved: they may know its cancel keys."""
        return self.moves.heirs(seat)

    def others(self, child: Child | None) -> list[Child]:
        """All workers that serve, but this one."""
        return [one for one in self.children if one is not child and one.ready]

    def is_whole(self) -> bool:
        """Whether every number is served, and nobody has told the fleet to end."""
        serving = all(post.child is not None and post.child.ready for post in self.posts)
        return self.up and serving and not self.state["shutdown"] and self.exit_code is None

    def now_s(self) -> float:
        """Monotonic."""
        return time.monotonic()

    # -- starting

    def begin(self) -> None:
        """Start all workers."""
        self.pulse.begin()
        for post in self.posts:
            post.child = self.start(post.number)
            if post.child is None:
                self.log.fatal(f"worker {post.number} cannot be started, exiting")
                self.stop(1)
                return

    def start(self, number: int) -> Child | None:
        """Start a process for a number; None if there is no seat or the system gives none."""
        seat = next((seat for seat in range(self.ledger.seats) if self._is_free(seat)), None)
        if seat is None:
            return None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            self.log.error(f"cannot start worker {number}: {error.strerror}")
            return None
        try:
            pid = spawn(theirs, self.ledger.fd, self.ledger.bells)
        except OSError as error:
            self.log.error(f"cannot start worker {number}: {sys.executable}: {error.strerror}")
            ours.close()
            return None
        finally:
            theirs.close()
        self.generation += 1
        self.ledger.occupy(seat, number)
        child = self.child(number, seat, self.generation, pid, ours)
        try:
            self._boot(child)
        except OSError as error:
            self.log.error(f"cannot start worker {number}: {error.strerror}")
            self.kill(child)
        return child

    def _is_free(self, seat: int) -> bool:
        return self.worker_for(seat) is None and self.ledger.free(seat)

    def child(self, number: int, seat: int, generation: int, pid: int, sock: socket.socket) -> Child:
        """Make the record of a process and listen to it."""
        channel = Channel(
            sock, self.loop, lambda: self._channel_ended(child), lambda verb, error: self._failed(child, verb, error)
        )
        child = Child(number, seat, generation, pid, channel, self.now_s())
        child.pidfd = os.pidfd_open(pid)
        self.loop.add_reader(child.pidfd, self._reap, child)
        self.children.append(child)
        channel.on("ready", lambda message: self._ready(child, message))
        channel.on("empty", lambda message: self._is_empty(child, bool(message["empty"])))
        for part in self.parts:
            part.attach(child)
        return child

    def _boot(self, child: Child) -> None:
        cpus = self.cpus[child.number]
        fields = {
            "number": child.number,
            "seat": child.seat,
            "workers": self.workers,
            "generation": child.generation,
            "overrides": self.overrides,
            "quiet": self.quiet,
            "cpus": sorted(cpus) if cpus else [],
            "key_secret": self.key_secret.hex(),
            "state": self.state,
        }
        child.channel.send("boot", fields, pickle.dumps(self.relay.reconfigure.bootable()))
        for listening in self.sockets.of(child.number):
            self.give(child, "listen", listening)
        child.channel.send("go")

    def give(self, child: Child, verb: str, listening: Listening) -> None:
        """Send a listening socket: `listen` or `lend`."""
        fields = {"listener": listening.id, "name": listening.name, "tcp": listening.tcp}
        child.channel.send(verb, fields, fd=listening.sock.fileno())

    def _ready(self, child: Child, message: Message) -> None:
        child.engine = str(message["engine"])
        child.ready = True
        took_ms = round((self.now_s() - child.started_s) * 1000)
        self.log.debug(f"worker {child.number} (pid {child.pid}) serves, {took_ms} ms after its start")
        post = self.posts[child.number]
        old = post.child
        if post.successor is child:
            post.child, post.successor = child, None
        self.lending.take_back(child.number)
        for part in self.parts:
            self._guarded(part.is_ready, child)
        self.rolling.is_ready(child, old)
        if not self.up and all(one.child is not None and one.child.ready for one in self.posts):
            self.up = True
            self.on_up()

    def _guarded(self, duty: Callable[[Child], None], child: Child) -> None:
        """A part that fails must not keep the others, and the replacement of a worker, from their work."""
        try:
            duty(child)
        except Exception:
            self.log.error(f"internal error in the supervisor: {traceback.format_exc()}")

    # -- ending

    def _channel_ended(self, child: Child) -> None:
        """It is about to end, or lost its mind; in the second case we help."""
        self.loop.call_later(END_LIMIT_S, self.kill, child)

    def _failed(self, child: Child, verb: str, error: Exception) -> None:
        """A message that makes no sense: whoever sends that cannot be trusted with clients."""
        what = f"'{verb}': {type(error).__name__}: {error}" if verb else str(error)
        self.log.error(f"worker {child.number} (pid {child.pid}) sent garbage, killing it: {what}")
        self.log.debug("".join(traceback.format_exception(error)))
        self.kill(child)

    def kill(self, child: Child) -> None:
        """At once."""
        if child in self.children:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    def _reap(self, child: Child) -> None:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:
            # Somebody else in this process has reaped it; how it ended is not known.
            pid, status = child.pid, 0
        if pid == 0:
            return
        self.loop.remove_reader(child.pidfd)
        os.close(child.pidfd)
        child.channel.drain()
        self.children.remove(child)
        self._guarded(lambda one: one.channel.give_up(), child)
        self._empty.discard(child)
        self.ledger.vacate(child.seat)
        for part in self.parts:
            self._guarded(part.died, child)
        self.ledger.settle(child.seat, self.undertaker.counted(child.seat))
        self._guarded(self.lending.died, child)
        self._dead(child, os.waitstatus_to_exitcode(status))

    def _dead(self, child: Child, code: int) -> None:
        post = self.posts[child.number]
        if self.exit_code is not None:
            self._end_if_over()
            return
        if not child.told or code:
            self.log.warning(f"worker {child.number} (pid {child.pid}) died: {_how(code)}")
        elif child.draining:
            self.log.log(f"worker {child.number} (pid {child.pid}) has drained")
        if not self.up and not child.ready and code > 0:
            self.log.fatal(f"worker {child.number} failed to start, exiting")
            self.stop(1)
        elif post.successor is child:
            post.successor = None
            if post.child is None:
                self._replace(post, child)
        elif post.child is child:
            post.child = None
            if post.successor is None:
                self._replace(post, child)
            else:
                self.lending.lend(post.number)
        self.rolling.died(child)
        self._check_shutdown()

    def _replace(self, post: Post, child: Child) -> None:
        if self.state["shutdown"]:
            return
        lived_s = self.now_s() - child.started_s
        young = not child.ready or lived_s < YOUNG_S
        post.restarts += 1
        post.pause_s = min(PAUSE_MAX_S, post.pause_s * 2 or PAUSE_FIRST_S) if young else 0.0
        self.lending.lend(post.number)
        if post.pause_s:
            self.log.warning(f"worker {post.number} is started again in {post.pause_s:g} s")
        self._later(post, post.pause_s)

    def _later(self, post: Post, delay_s: float) -> None:
        post.timer = self.loop.call_later(delay_s, self._again, post)

    def _again(self, post: Post) -> None:
        post.timer = None
        if self.exit_code is not None or post.child is not None:
            return
        post.child = self.start(post.number)
        if post.child is None:
            self._later(post, PAUSE_FIRST_S)
        else:
            self.log.log(f"worker {post.number} is started again, pid {post.child.pid}")

    # -- the end of the fleet

    def shutdown(self, mode: str) -> None:
        """End the fleet: at once, when all servers are released, or when all clients have left."""
        if mode == "now":
            self.stop(0)
            return
        if self.exit_code is not None or self.state["shutdown"] in (mode, "servers"):
            return
        self.state["shutdown"] = mode
        self.rolling.stop()
        self._empty.clear()
        self.sockets.close_tcp()
        for child in self.children:
            child.channel.send("shutdown", {"mode": mode})
        self._check_shutdown()

    def _is_empty(self, child: Child, empty: bool) -> None:
        (self._empty.add if empty else self._empty.discard)(child)
        self._check_shutdown()

    def _check_shutdown(self) -> None:
        mode = self.state["shutdown"]
        if mode and self.exit_code is None and all(child in self._empty for child in self.children):
            self.log.log(_ENDED[mode])
            self.stop(0)

    def stop(self, code: int) -> None:
        """Tell all workers to end, and end after them."""
        if self.exit_code is not None:
            return
        self.exit_code = code
        self.rolling.stop()
        for post in self.posts:
            if post.timer is not None:
                post.timer.cancel()
        for child in self.children:
            child.told = True
            child.channel.send("stop", {"code": 0})
            self.loop.call_later(END_LIMIT_S, self.kill, child)
        self._end_if_over()

    def _end_if_over(self) -> None:
        if not self.children:
            self.loop.stop()

    def close(self) -> None:
        """Give back what the fleet held; all workers are gone."""
        self.pulse.close()
        self.foresight.close()
        self.undertaker.close()
        end_tasks(self.loop)
        self.letterboxes.close()
        self.sockets.close()
        self.ledger.close()
        self.ledger.close_descriptors()
        self.log.flush()

    def restart(self, deadline_s: float | None, done: Done) -> None:
        """RESTART: replace all workers, one after another."""
        self.rolling.begin(DEADLINE_S if deadline_s is None else deadline_s, done)

    def upgrade(self, done: Done) -> None:
        """UPGRADE: replace the supervisor's program, then all workers."""
        self.upgrading.begin(done)

    def reload(self) -> None:
        """RELOAD; the log says what becomes of it."""
        self.relay.reconfigure.reload(lambda wrong: None)

    def order(self, command: str) -> None:
        """PAUSE or RESUME of everything, for nobody who waits."""
        self.relay.order(command, "", lambda result: None)

    def notify(self, state: str) -> None:
        """Tell systemd."""
        notify(state, self.log)


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
