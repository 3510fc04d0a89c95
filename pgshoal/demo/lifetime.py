"""A program of ours that lives as long as a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifetime(ABC):
    """Started at the block's beginning, removed at its end; removed too when the start fails."""

    @abstractmethod
    def start(self) -> None:
        """Starts it and waits until it serves."""

    @abstractmethod
    def remove(self) -> None:
        """Stops it, if it runs, and removes its files."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
