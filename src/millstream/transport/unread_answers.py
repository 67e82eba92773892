"""The bytes of answers that the clients of a process have not read yet, and who may be served although some lie there.

Over the budget only those are served who have read nearly all that they were given. Who reads nothing for long, or for
longest where more and more comes, loses the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConnectionFailed

__all__ = ["ANSWER_BUDGET_BYTES", "SERVED_BYTES", "UNREAD_LIMIT_S", "UnreadAnswer", "UnreadAnswers"]

ANSWER_BUDGET_BYTES: Final = 192 * 1024 * 1024
"""Bytes of unread answers of a process over which connections that have unread ones are not served; a quarter more, and
the connection that has read nothing for longest is closed."""

SERVED_BYTES: Final = 64 * 1024
"""A connection with no more unread bytes is served in any case."""

UNREAD_LIMIT_S: Final = 5.0
"""Seconds without reading a byte after which a connection is closed, where the budget is used up."""

_SERVED_AT_ONCE_BYTES: Final = 1024 * 1024


@dataclass(slots=True, eq=False)
class UnreadAnswer:
    """What one connection has not read. `measure` says how much that is now, `go_on` serves the connection on a little
    later, `give_up` closes it."""

    measure: Callable[[], int]
    go_on: Callable[[], object]
    give_up: Callable[[ConnectionFailed], object]
    held_bytes: int = 0
    read_s: float = 0.0


class UnreadAnswers:
    """Of all connections that share `total_bytes`. Times are of the monotonic clock, in seconds."""

    def __init__(self, total_bytes: int = ANSWER_BUDGET_BYTES) -> None:
        self.used_bytes = 0
        self._total_bytes = total_bytes
        self._most_bytes = total_bytes + total_bytes // 4
        self._waiting: dict[UnreadAnswer, None] = {}
        # Who has read nothing for longest is the first.
        self._answers: dict[UnreadAnswer, None] = {}

    def note_unread(self, answer: UnreadAnswer, held_bytes: int, now_s: float) -> bool:
        """Note what a connection has not read; whether it may be served now, or `go_on` says so later."""
        if answer not in self._answers or held_bytes < answer.held_bytes:
            self._answers.pop(answer, None)
            self._answers[answer] = None
            answer.read_s = now_s
        self.used_bytes += held_bytes - answer.held_bytes
        answer.held_bytes = held_bytes
        while self.used_bytes > self._most_bytes and answer in self._answers:
            self._give_up(self._longest(), now_s)
        if answer not in self._answers:
            return False
        if self.used_bytes <= self._total_bytes or held_bytes <= SERVED_BYTES:
            self._waiting.pop(answer, None)
            return True
        self._waiting[answer] = None
        return False

    def end(self, answer: UnreadAnswer) -> None:
        """All is read, or the connection is gone; a second time is no error."""
        self._forget(answer)
        if self._waiting:
            self._wake()

    def sweep(self, now_s: float) -> None:
        """Close those who read nothing, while the budget is used up."""
        for answer in list(self._answers):
            if self.used_bytes <= self._total_bytes or now_s - answer.read_s < UNREAD_LIMIT_S:
                break
            if answer not in self._answers or answer.held_bytes <= SERVED_BYTES:
                continue
            held_bytes = answer.measure()
            if held_bytes < answer.held_bytes:
                self.note_unread(answer, held_bytes, now_s)
            else:
                self._give_up(answer, now_s)
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        room_bytes = self._total_bytes - self.used_bytes
        while self._waiting and room_bytes >= 0:
            answer = next(iter(self._waiting))
            del self._waiting[answer]
            room_bytes -= _SERVED_AT_ONCE_BYTES
            answer.go_on()

    def _longest(self) -> UnreadAnswer:
        return next((one for one in self._answers if one.held_bytes > SERVED_BYTES), next(iter(self._answers)))

    def _give_up(self, answer: UnreadAnswer, now_s: float) -> None:
        error = ConnectionFailed(
            "ANSWERS_NOT_READ",
            f"{answer.held_bytes} bytes of answers were not read for {now_s - answer.read_s:.1f} s; "
            f"those of all clients are {self.used_bytes}, and the limit is {self._total_bytes}.",
        )
        self._forget(answer)
        answer.give_up(error)

    def _forget(self, answer: UnreadAnswer) -> None:
        if self._answers.pop(answer, self) is self:
            return
        self._waiting.pop(answer, None)
        self.used_bytes -= answer.held_bytes
        answer.held_bytes = 0
