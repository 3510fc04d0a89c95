"""An engine as asyncio's selector: one wait for hot sockets, cold descriptors and the engine's own events."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

    from pgshoal.engine.contract import Engine


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


class EngineSelector(BaseSelector):
    """For `asyncio.SelectorEventLoop(EngineSelector(engine))`.

    `loop.add_reader(selector.events_fd, callback)` calls back whenever the engine has events to give.
    The engine belongs to the caller: `close` takes asyncio's descriptors out of it and no more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._keys = _Keys()
        self._events_key: SelectorKey | None = None
        #: Stands for "the engine has events"; a real descriptor that is never ready, so that no number is used twice.
        self.events_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

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
        if key.fd == self.events_fd:
            self._events_key = None
        else:
            self._engine.unwatch(key.fd)
        return key

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """Change events or data of a watched descriptor."""
        if not events or events & ~(EVENT_READ | EVENT_WRITE):
            raise ValueError(f"invalid events: {events!r}")
        old = self._keys[fileobj]
        return self._put(SelectorKey(old.fileobj, old.fd, events, data), watch=events != old.events)

    def _put(self, key: SelectorKey, watch: bool) -> SelectorKey:
        if key.fd == self.events_fd:
            self._events_key = key
        elif watch:
            self._engine.watch(key.fd, key.events)
        self._keys.by_fd[key.fd] = key
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Let the engine work until a watched descriptor is ready, the engine has events, or the time is over."""
        by_fd = self._keys.by_fd
        ready = []
        for fd, mask in self._engine.wait(timeout):
            key = by_fd.get(fd)
            if key is not None:
                ready.append((key, mask & key.events))
        if self._events_key is not None and self._engine.pending():
            ready.append((self._events_key, EVENT_READ))
        return ready

    def close(self) -> None:
        """Forget all descriptors."""
        for fd in self._keys.by_fd:
            if fd != self.events_fd:
                self._engine.unwatch(fd)
        self._keys.by_fd.clear()
        self._events_key = None
        if self.events_fd >= 0:
            os.close(self.events_fd)
            self.events_fd = -1

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """What is registered."""
        return self._keys
