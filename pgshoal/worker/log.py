"""PgBouncer's log: its line format, levels and socket prefixes; to stderr, a file or syslog, once per loop turn."""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Callable
from typing import Final

from pgshoal.errors import escape_bytes

FATAL: Final = 0
ERROR: Final = 1
WARNING: Final = 2
LOG: Final = 3
DEBUG: Final = 4
NOISE: Final = 5

_NAMES: Final = ("FATAL", "ERROR", "WARNING", "LOG", "DEBUG", "NOISE")
_SYSLOG: Final = (syslog.LOG_CRIT, syslog.LOG_ERR, syslog.LOG_WARNING, syslog.LOG_INFO)
LINE_MAX: Final = 2048
#: Lines held back when no loop turn comes by, so that a burst cannot grow without bound.
_HELD_MAX: Final = 256
_STDERR: Final = 2


class Log:
    """Collects lines; `flush` writes them. The worker flushes once per loop turn, and before it ends."""

    __slots__ = (
        "_clock", "_fd", "_head", "_held", "_logfile", "_second", "_stderr", "_syslog", "_tail",
        "debug_on", "level", "noise_on",
    )  # fmt: skip

    def __init__(self, stderr: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._stderr = stderr
        self._fd = -1
        self._logfile = ""
        self._syslog = False
        self._held: list[bytes] = []
        self._second = -1
        self._head = ""
        self._tail = tuple(f" [{os.getpid()}] {name} " for name in _NAMES)
        self.level = LOG
        self.debug_on = False
        self.noise_on = False

    def set_verbose(self, verbose: int) -> None:
        """0 is normal, 1 adds DEBUG, 2 and more add NOISE."""
        self.level = LOG + min(max(verbose, 0), 2)
        self.debug_on = self.level >= DEBUG
        self.noise_on = self.level >= NOISE

    def reopen(self, logfile: str, stderr: bool | None = None) -> None:
        """Open the file anew ("" for none), as after a rotation or a fork. OSError leaves the old one in use."""
        fd = os.open(logfile, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) if logfile else -1
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._logfile = fd, logfile
        self._second = -1
        if stderr is not None:
            self._stderr = stderr

    def use_syslog(self, on: bool, ident: str = "pgbouncer", facility: str = "daemon") -> None:
        """Also write to syslog, or no longer; an unknown facility counts as daemon."""
        if on:
            code = getattr(syslog, "LOG_" + facility.upper(), syslog.LOG_DAEMON)
            syslog.openlog(ident, syslog.LOG_PID, code)
        elif self._syslog:
            syslog.closelog()
        self._syslog = on

    def write(self, level: int, text: str) -> None:
        """One line; embedded newlines start continuation lines with a tab."""
        if level > self.level:
            return
        text = escape_bytes(text)
        if "\n" in text:
            text = text.replace("\n", "\n\t")
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            local = time.localtime(second)
            self._head = time.strftime("%Y-%m-%d %H:%M:%S.", local)
            zone = " " + time.strftime("%Z", local)
            self._tail = tuple(f"{zone} [{os.getpid()}] {name} " for name in _NAMES)
        milli = int((now - second) * 1000)
        line = f"{self._head}{milli:03d}{self._tail[level]}{text}".encode()
        self._held.append((line[: LINE_MAX - 1] if len(line) >= LINE_MAX else line) + b"\n")
        if self._syslog and level <= LOG:
            syslog.syslog(_SYSLOG[level], text.replace("\0", ""))
        if len(self._held) >= _HELD_MAX:
            self.flush()

    def fatal(self, text: str) -> None:
        self.write(FATAL, text)

    def error(self, text: str) -> None:
        self.write(ERROR, text)

    def warning(self, text: str) -> None:
        self.write(WARNING, text)

    def log(self, text: str) -> None:
        self.write(LOG, text)

    def debug(self, text: str) -> None:
        self.write(DEBUG, text)

    def noise(self, text: str) -> None:
        self.write(NOISE, text)

    def flush(self) -> None:
        """Write what is held, one write for each sink. A sink that fails loses these lines; nothing else stops."""
        if not self._held:
            return
        data = b"".join(self._held)
        self._held.clear()
        if self._fd >= 0:
            _write(self._fd, data)
        if self._stderr:
            _write(_STDERR, data)


def _write(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        # A full disk or a closed terminal: the log has no other place to complain.
        return


def pointer(conn: int) -> str:
    """How a connection is named in log lines and in SHOW's ptr and link columns."""
    return f"0x{conn:x}"


def place(host: str, port: int, pid: int = 0) -> str:
    """host:port as log lines show it: IPv6 in brackets, a Unix peer with its process id."""
    if host == "unix":
        return f"unix({pid}):{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def socket_prefix(side: str, conn: int, database: str, user: str, where: str) -> str:
    """`C-0x12: db/user@host:port `; `side` is C or S, "" for a name not known yet."""
    return f"{side}-0x{conn:x}: {database or '(nodb)'}/{user or '(nouser)'}@{where} "
