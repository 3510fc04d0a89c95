"""The supervisor replaces its own program: same process, same sockets, same workers; then the workers are restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pgshoal import __version__
from pgshoal.config.load import keep_secrets
from pgshoal.config.model import Secret
from pgshoal.fleet import takeover
from pgshoal.worker.signals import FOR_THE_SUPERVISOR

if TYPE_CHECKING:
    from pgshoal.config.model import Config
    from pgshoal.fleet.rolling import Done
    from pgshoal.fleet.supervisor import Supervisor
    from pgshoal.fleet.takeover import Estate

#: The new program must say by then that it can go on.
TRY_LIMIT_S: Final = 30.0
#: Requests of workers are answered first, if that does not take longer.
QUIET_LIMIT_S: Final = 2.0
_LOOK_S: Final = 0.05
#: Settings that belong to what is taken over as it is.
_KEPT: Final = ("workers", "listen_addr", "listen_port", "unix_socket_dir", "pidfile")


class Upgrade:
    """Tries the new program, then becomes it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._fleet = supervisor
        self.busy = False

    def begin(self, done: Done) -> None:
        """`done` with what is wrong, or with "" right before the exec."""
        fleet = self._fleet
        if self.busy or fleet.rolling.busy:
            done("an upgrade or restart is under way")
        elif not fleet.is_whole():
            done("the fleet is starting, shutting down, or without one of its workers")
        else:
            self.busy = True
            fleet.log.log("upgrade: trying the new program")
            fd = takeover.write(export(fleet))
            Trial(fleet, fd, lambda wrong: self._tried(fd, wrong, done))

    def _tried(self, fd: int, wrong: str, done: Done) -> None:
        os.close(fd)
        if wrong:
            self._fail(f"the new program cannot take over: {wrong}", done)
            return
        self._when_quiet(self._fleet.now_s() + QUIET_LIMIT_S, done)

    def _fail(self, wrong: str, done: Done) -> None:
        self.busy = False
        self._fleet.log.error(f"upgrade: {wrong}")
        done(wrong)

    def _when_quiet(self, until_s: float, done: Done) -> None:
        fleet = self._fleet
        # The one that is answered last is the request for this upgrade.
        owed = sum(child.channel.owes for child in fleet.children)
        if owed > 1 and fleet.now_s() < until_s:
            fleet.loop.call_later(_LOOK_S, self._when_quiet, until_s, done)
        elif not fleet.is_whole():
            self._fail("a worker has died meanwhile", done)
        else:
            fleet.log.log("upgrade: executing the new program")
            done("")
            self._execute()

    def _execute(self) -> None:
        fleet = self._fleet
        state = export(fleet)
        fd = takeover.write(state)
        kept = [fd, *descriptors(state)]
        environment = {**os.environ, takeover.TAKE_OVER: str(fd)}
        # Signals that come while nobody handles them would end the process; they wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_SUPERVISOR)
        takeover.keep(kept, True)
        try:
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
        except OSError as error:
            takeover.keep(kept, False)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_SUPERVISOR)
            os.close(fd)
            self.busy = False
            fleet.log.error(f"upgrade: cannot execute {sys.executable}: {error.strerror}")


class Trial:
    """The new program in a process of its own, which reads the state and ends."""

    def __init__(self, supervisor: Supervisor, state_fd: int, done: Callable[[str], None]) -> None:
        self._fleet = supervisor
        self._done = done
        self._said = bytearray()
        self._out, theirs = os.pipe()
        os.set_blocking(self._out, False)
        kept = (state_fd, supervisor.ledger.fd, *supervisor.ledger.bells)
        actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in kept]
        actions += [(os.POSIX_SPAWN_DUP2, theirs, fd) for fd in (1, 2)]
        environment = {**os.environ, takeover.TRY: str(state_fd)}
        argv = [sys.executable, *sys.orig_argv[1:]]
        try:
            self._pid = os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsigmask=())
        except OSError as error:
            os.close(self._out)
            done(f"{sys.executable}: {error.strerror}")
            return
        finally:
            os.close(theirs)
        supervisor.assistants.add(self._pid)
        supervisor.loop.add_reader(self._out, self._read)
        self._timer = supervisor.loop.call_later(TRY_LIMIT_S, os.kill, self._pid, signal.SIGKILL)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._out, 65536):
                self._said += piece
            self._timer.cancel()
            self._fleet.loop.remove_reader(self._out)
            os.close(self._out)
            _, status = os.waitpid(self._pid, 0)
            self._fleet.assistants.discard(self._pid)
            lines = self._said.decode(errors="replace").strip().splitlines()
            code = os.waitstatus_to_exitcode(status)
            self._done("" if code == 0 else lines[-1] if lines else f"it ended with status {code}")


# -- what is handed over


def export(fleet: Supervisor) -> dict[str, Any]:
    """All that must outlive the program, as JSON."""
    return {
        "version": __version__,
        "workers": fleet.workers,
        "kept": {name: getattr(fleet.config.settings, name) for name in _KEPT},
        "secrets": {name: [secret.kind, secret.text] for name, secret in fleet.config.secrets.items()},
        "generation": fleet.generation,
        "key_secret": fleet.key_secret.hex(),
        "state": fleet.state,
        "restarts": [post.restarts for post in fleet.posts],
        "sockets": fleet.sockets.export(),
        "ledger": fleet.ledger.fd,
        "bells": list(fleet.ledger.bells),
        "boxes": fleet.letterboxes.export(),
        "escrow": fleet.undertaker.export(),
        "heirs": fleet.moves.export(),
        "figures": fleet.relay.figures.export(),
        "children": [
            {
                "number": child.number,
                "seat": child.seat,
                "generation": child.generation,
                "pid": child.pid,
                "age_s": fleet.now_s() - child.started_s,
                "draining": child.draining,
                "engine": child.engine,
                "vitals": child.vitals,
                "channel": child.channel.export(),
            }
            for child in fleet.children
        ],
    }


def descriptors(state: dict[str, Any]) -> list[int]:
    """Every descriptor that the state names."""
    found = [state["ledger"], *state["bells"]]
    found += [row[-1] for row in state["sockets"]["sockets"]]
    found += [fd for pair in state["boxes"] for fd in pair]
    found += [each["fd"] for each in state["escrow"] if "fd" in each]
    for child in state["children"]:
        channel = child["channel"]
        found += [channel["fd"], *channel["in_fds"], *(fd for _, fd in channel["out"] if fd >= 0)]
    return found


def fitting(config: Config, estate: Estate) -> Config:
    """The configuration with what cannot change while the sockets and numbers stay, and secrets if it lacks its own."""
    kept: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in estate["kept"].items()}
    fresh = replace(config, settings=replace(config.settings, **kept))
    if "secrets" not in estate.state:  # an older program's
        return fresh
    return keep_secrets({name: Secret(*secret) for name, secret in estate["secrets"].items()}, fresh)


def adopt(fleet: Supervisor, estate: Estate) -> None:
    """Go on where the program before has stopped. The fleet was made with the estate's numbers and ledger."""
    takeover.keep(descriptors(dict(estate.state)), False)
    fleet.generation = estate["generation"]
    fleet.key_secret = bytes.fromhex(estate["key_secret"])
    fleet.state.update(estate["state"])
    fleet.sockets.adopt(estate["sockets"])
    fleet.letterboxes.adopt(estate["boxes"])
    fleet.undertaker.adopt(estate["escrow"])
    fleet.moves.adopt(estate["heirs"])
    fleet.relay.figures.adopt(estate["figures"])
    fleet.relay.adopt()
    for post, restarts in zip(fleet.posts, estate["restarts"], strict=True):
        post.restarts = restarts
    fleet.up = True
    for each in estate["children"]:
        sock = socket.socket(fileno=each["channel"]["fd"])
        child = fleet.child(each["number"], each["seat"], each["generation"], each["pid"], sock)
        child.started_s -= each["age_s"]
        child.engine, child.vitals = each["engine"], each["vitals"]
        child.ready, child.draining, child.told = True, each["draining"], each["draining"]
        child.channel.adopt(each["channel"])
        if not child.draining:
            fleet.posts[child.number].child = child
            for part in fleet.parts:
                part.is_ready(child)
    fleet.log.log(f"upgrade: pgshoal {__version__} has taken over from {estate['version']}")
