"""An engine as asyncio's selector: one wait for hot sockets, cold descriptors and the engine's own events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVarTuple

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from pgshoal.engine.contract import Engine

_Ts = TypeVarTuple("_Ts")


def _number(fileobj: FileDescriptorLike) -> int:
    fd = fileobj if isinstance(fileobj, int) else int(fileobj.fileno())
    if fd < 0:
        raise ValueError(f"invalid file descriptor: {fd}")
    return fd


class _Keys(Mapping["FileDescriptorLike", SelectorKey]):
    """What is registered, found by descriptor or by file object."""

    def __init__(self) -> None:
        self.by_fd: dict[int, SelectorKey] = {}

    def __len__(self) -> int:
        return len(self.by_fd)

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_fd)

    def __getitem__(self, fileobj: FileDescriptorLike) -> SelectorKey:
        try:
            return self.by_fd[_number(fileobj)]
        except ValueError:
            # A file object that is closed already is still found by identity, so that it can be unregistered.
            for key in self.by_fd.values():
                if key.fileobj is fileobj:
                    return key
            raise KeyError(fileobj) from None


class Due:
    """Whether asyncio has got something to run since the wait began."""

    __slots__ = ("set",)

    def __init__(self) -> None:
        self.set = False


class EngineLoop(asyncio.SelectorEventLoop):
    """Asyncio's loop, which tells its selector when the wait must end because something is to be run."""

    def __init__(self, selector: EngineSelector) -> None:
        # Not the selector itself: a loop ends in cycles, and the engine must not wait for the collector with it.
        self._due = selector.due
        super().__init__(selector)
        selector.told = True

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's."""
        self._due.set = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; `call_later` comes here too."""
        self._due.set = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        """As asyncio's."""
        self._due.set = True
        super().stop()


class EngineSelector(BaseSelector):
    """For `asyncio.SelectorEventLoop(EngineSelector(engine))`.

    `on_events` is called whenever the engine has events to give, inside the wait: a turn of asyncio's loop for each
    wake would cost more than most events. It must not raise. Under an `EngineLoop` the wait then goes on, unless
    asyncio has got something to do.
    The engine belongs to the caller: `close` takes asyncio's descriptors out of it and no more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys = _Keys()
        self.on_events: Callable[[], None] | None = None
        #: Whether the loop tells in `due` that it has something to run; else every wake must end the wait.
        self.told = False
        self.due = Due()

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """Watch a descriptor; KeyError if it is watched already."""
        if not events or events & ~(EVENT_READ | EVENT_WRITE):
            raise ValueError(f"invalid events: {events!r}")
        fd = _number(fileobj)
        if fd in self._keys.by_fd:
            raise KeyError(f"{fileobj!r} (descriptor {fd}) is already registered")
        return self._put(SelectorKey(fileobj, fd, events, data), watch=True)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """Stop watching; KeyError if it is not watched."""
        key = self._keys[fileobj]
        del self._keys.by_fd[key.fd]
        self._engine.unwatch(key.fd)
        return key

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """Change events or data of a watched descriptor."""
        if not events or events & ~(EVENT_READ | EVENT_WRITE):
            raise ValueError(f"invalid events: {events!r}")
        old = self._keys[fileobj]
        return self._put(SelectorKey(old.fileobj, old.fd, events, data), watch=events != old.events)

    def _put(self, key: SelectorKey, watch: bool) -> SelectorKey:
        if watch:
            self._engine.watch(key.fd, key.events)
        self._keys.by_fd[key.fd] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Let the engine work until a watched descriptor is ready, the engine had events, or the time is over."""
        engine, on_events = self._engine, self.on_events
        until = None if timeout is None else monotonic() + timeout
        due = self.due
        due.set = False
        while True:
            found = engine.wait(timeout)
            ready = []
            if found:
                # The keys are looked up before `on_events`, which may register and unregister.
                by_fd = self._keys.by_fd
                ready = [(by_fd[fd], mask & by_fd[fd].events) for fd, mask in found if fd in by_fd]
            if on_events is None or not engine.pending():
                return ready
            on_events()
            if found or due.set or not self.told:
                return ready
            if until is not None:
                timeout = until - monotonic()
                if timeout <= 0:
                    return ready

    def close(self) -> None:
        """Forget all descriptors."""
        for fd in self._keys.by_fd:
            self._engine.unwatch(fd)
        self._keys.by_fd.clear()

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """What is registered."""
        return self._keys
