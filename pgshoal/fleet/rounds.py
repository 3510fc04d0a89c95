"""One question to several workers, until each has answered, has died, or is not waited for any longer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgshoal.fleet.channel import Message
    from pgshoal.fleet.children import Child

#: An answer has come; True ends the round at once.
Heard = Callable[["Child", "Message"], bool]


def _go_on(child: Child, answer: Message) -> bool:
    return False


class Round:
    """After `begin`, `done` is called once, later or at once, unless `forget` comes first."""

    def __init__(
        self,
        children: Iterable[Child],
        verb: str,
        fields: Mapping[str, Any],
        done: Callable[[Round], None],
        blob: bytes = b"",
        heard: Heard = _go_on,
    ) -> None:
        self.answers: list[tuple[Child, Message]] = []
        self._done = done
        self._heard = heard
        self._over = False
        self._numbers: dict[Child, int] = dict.fromkeys(children, 0)
        self._request = verb, fields, blob

    def begin(self) -> None:
        """Ask."""
        verb, fields, blob = self._request
        for child in list(self._numbers):
            number = child.channel.ask(verb, partial(self._answered, child), fields, blob)
            if child in self._numbers:
                self._numbers[child] = number
        self._finish_if_all()

    @property
    def missing(self) -> list[Child]:
        """Those who still owe an answer."""
        return list(self._numbers)

    def _answered(self, child: Child, answer: Message | None) -> None:
        if self._numbers.pop(child, None) is None:
            return
        if answer is not None:
            self.answers.append((child, answer))
            if self._heard(child, answer):
                self.finish()
        self._finish_if_all()

    def _finish_if_all(self) -> None:
        if not self._numbers:
            self.finish()

    def finish(self) -> None:
        """Go on with the answers there are; `missing` names the others."""
        if not self._over:
            self.forget()
            self._done(self)

    def forget(self) -> dict[Child, int]:
        """No answer is wanted any more; whose were owed, and the numbers of the requests."""
        self._over = True
        for child, number in self._numbers.items():
            child.channel.forget(number)
        return self._numbers
