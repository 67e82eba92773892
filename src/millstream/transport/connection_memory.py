"""Memory accounting of connections: partially received frames, and unsent responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConnectionFailed
from millstream.transport.freed_memory import FreedMemory
from millstream.transport.input_pacing import InputPacing
from millstream.transport.late_answers import LateAnswers

__all__ = [
    "AHEAD_BYTES",
    "AHEAD_LIMIT_S",
    "ANSWER_BUDGET_BYTES",
    "FRAME_BUDGET_BYTES",
    "FRAME_LIMIT_S",
    "SERVED_BYTES",
    "SMALL_BYTES",
    "STALL_LIMIT_S",
    "SWEEP_INTERVAL_S",
    "UNREAD_LIMIT_S",
    "UNSIGNED_AHEAD_BYTES",
    "UNSIGNED_BUDGET_BYTES",
    "ConnectionMemory",
    "HalfFrame",
    "HalfFrames",
    "UnreadAnswer",
    "UnreadAnswers",
]


FRAME_BUDGET_BYTES: Final = 192 * 1024 * 1024
"""Bytes of half-received frames of a process over which large frames wait; a quarter more, and the frame that got no
byte for longest is given up."""

UNSIGNED_BUDGET_BYTES: Final = 32 * 1024 * 1024
"""The same for the connections that have not signed a request yet, where access control is on."""

AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bytes that frames may miss, all together, that are read on although the budget is used up."""

UNSIGNED_AHEAD_BYTES: Final = 6 * 1024 * 1024
"""The same for the connections that have not signed a request yet."""

SMALL_BYTES: Final = 64 * 1024
"""A frame that misses no more is read on in any case."""

FRAME_LIMIT_S: Final = 30.0
"""Seconds in which a frame must have arrived, from its first byte on and without the time in which it had to wait."""

AHEAD_LIMIT_S: Final = 5.0
"""Seconds that one of the frames has which are read on although the budget is used up."""

STALL_LIMIT_S: Final = 2.0
"""Seconds without a byte after which a large frame is given up while others wait for its memory."""

_ROOM_AT_ONCE_BYTES: Final = 512 * 1024


@dataclass(slots=True, eq=False)
class HalfFrame:
    """What one connection has received of a frame. `go_on` reads it on; `give_up` closes the connection."""

    go_on: Callable[[], object]
    give_up: Callable[[ConnectionFailed], object]
    held_bytes: int = 0
    missing_bytes: int = 0
    began_s: float = 0.0
    arrived_s: float = 0.0
    waits: bool = False
    ahead_since_s: float | None = None


class HalfFrames:
    """Of all connections that share `total_bytes`. Times are of the monotonic clock, in seconds."""

    def __init__(self, total_bytes: int = FRAME_BUDGET_BYTES, ahead_bytes: int = AHEAD_BYTES) -> None:
        self.used_bytes = 0
        self.waiting = 0
        """Frames that wait for memory."""
        self._total_bytes = total_bytes
        self._most_bytes = total_bytes + total_bytes // 4
        self._ahead_bytes = ahead_bytes
        self._missing_ahead_bytes = 0
        # The one that got no byte for longest is the first.
        self._frames: dict[HalfFrame, None] = {}

    def note_bytes(self, frame: HalfFrame, held_bytes: int, missing_bytes: int, now_s: float, *, begins: bool) -> bool:
        """Note what is there of a frame; whether more of it may be read now, or `go_on` says so later."""
        if self._frames.pop(frame, self) is self or begins:
            frame.began_s = now_s
            self._fall_back(frame)
        self._frames[frame] = None
        self.used_bytes += held_bytes - frame.held_bytes
        if frame.ahead_since_s is not None:
            self._missing_ahead_bytes += missing_bytes - frame.missing_bytes
        frame.held_bytes, frame.missing_bytes, frame.arrived_s = held_bytes, missing_bytes, now_s
        while self.used_bytes > self._most_bytes and frame in self._frames:
            self._give_up(self._longest(), self._over_budget())
        if frame not in self._frames:
            return False
        if self._may_go_on(frame, now_s):
            self.waiting -= frame.waits
            frame.waits = False
            return True
        if not frame.waits:
            frame.waits = True
            self.waiting += 1
        return False

    def end(self, frame: HalfFrame, now_s: float) -> None:
        """The frame is whole, or its connection is gone; a second time is no error."""
        self._forget(frame)
        if self.waiting:
            self._wake(now_s)

    def sweep(self, now_s: float) -> None:
        """Give up the frames whose time is over."""
        is_short = self.waiting > 0
        for frame in list(self._frames):
            if frame.waits or frame not in self._frames:
                continue
            if now_s - frame.began_s >= FRAME_LIMIT_S:
                self._give_up(frame, _too_slow(frame, f"{FRAME_LIMIT_S:g} s"))
            elif frame.ahead_since_s is not None and now_s - frame.ahead_since_s >= AHEAD_LIMIT_S:
                self._give_up(frame, _too_slow(frame, f"{AHEAD_LIMIT_S:g} s while others waited for memory"))
            elif is_short and frame.held_bytes > SMALL_BYTES and now_s - frame.arrived_s >= STALL_LIMIT_S:
                quiet = f"{STALL_LIMIT_S:g} s without a byte while others waited for memory"
                self._give_up(frame, _too_slow(frame, quiet))
        if self.waiting:
            self._wake(now_s)

    def _may_go_on(self, frame: HalfFrame, now_s: float) -> bool:
        is_free = self.used_bytes <= self._total_bytes or frame.missing_bytes <= SMALL_BYTES
        return is_free or self._goes_ahead(frame, now_s)

    def _goes_ahead(self, frame: HalfFrame, now_s: float) -> bool:
        if frame.ahead_since_s is not None:
            return True
        if self._missing_ahead_bytes + frame.missing_bytes > self._ahead_bytes:
            return False
        frame.ahead_since_s = now_s
        self._missing_ahead_bytes += frame.missing_bytes
        return True

    def _wake(self, now_s: float) -> None:
        """Let those go on for whom there is room, the ones that miss the least first."""
        room_bytes = self._total_bytes - self.used_bytes
        for frame in sorted((one for one in self._frames if one.waits), key=lambda one: one.missing_bytes):
            wanted_bytes = min(frame.missing_bytes, _ROOM_AT_ONCE_BYTES)
            if wanted_bytes > room_bytes and not self._goes_ahead(frame, now_s):
                return
            room_bytes -= wanted_bytes
            frame.waits = False
            self.waiting -= 1
            # What it waited does not count against it.
            frame.began_s += now_s - frame.arrived_s
            frame.arrived_s = now_s
            frame.go_on()

    def _longest(self) -> HalfFrame:
        """The one that got no byte for longest, of those that are not small if there are any."""
        return next((one for one in self._frames if one.held_bytes > SMALL_BYTES), next(iter(self._frames)))

    def _over_budget(self) -> ConnectionFailed:
        held = f"Requests that are half received hold {self.used_bytes} bytes; the limit is {self._most_bytes}."
        return ConnectionFailed("REQUESTS_OVER_BUDGET", f"{held} This one got no byte for longest.")

    def _give_up(self, frame: HalfFrame, error: ConnectionFailed) -> None:
        self._forget(frame)
        frame.give_up(error)

    def _forget(self, frame: HalfFrame) -> None:
        if self._frames.pop(frame, self) is self:
            return
        self.used_bytes -= frame.held_bytes
        self._fall_back(frame)
        self.waiting -= frame.waits
        frame.held_bytes, frame.missing_bytes, frame.waits = 0, 0, False

    def _fall_back(self, frame: HalfFrame) -> None:
        if frame.ahead_since_s is not None:
            self._missing_ahead_bytes -= frame.missing_bytes
            frame.ahead_since_s = None


def _too_slow(frame: HalfFrame, limit: str) -> ConnectionFailed:
    missing = f"{frame.held_bytes} bytes of a request are there and {frame.missing_bytes} are missing"
    return ConnectionFailed("REQUEST_TOO_SLOW", f"{missing}; the limit is {limit}.")


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

    @property
    def are_many(self) -> bool:
        """Whether half of the budget is used: who makes answers makes small ones."""
        return self.used_bytes > self._total_bytes // 2

    def note_unread(self, answer: UnreadAnswer, held_bytes: int, now_s: float) -> bool:
        """Note what a connection has not read; whether it may be served now, or `go_on` says so later."""
        if answer not in self._answers or held_bytes < answer.held_bytes:
            self._answers.pop(answer, None)
            self._answers[answer] = None
            answer.read_s = now_s
        self.used_bytes += held_bytes - answer.held_bytes
        answer.held_bytes = held_bytes
        while self.used_bytes > self._most_bytes and answer in self._answers:
            longest = self._longest()
            if not self._has_read(longest, now_s):
                self._give_up(longest, now_s)
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
            if not self._has_read(answer, now_s):
                self._give_up(answer, now_s)
        if self._waiting:
            self._wake()

    def _has_read(self, answer: UnreadAnswer, now_s: float) -> bool:
        """Whether some of it was read since it was noted, which is noted then."""
        held_bytes = answer.measure()
        if held_bytes >= answer.held_bytes:
            return False
        self.used_bytes -= answer.held_bytes - held_bytes
        answer.held_bytes, answer.read_s = held_bytes, now_s
        self._answers.pop(answer)
        self._answers[answer] = None
        return True

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


SWEEP_INTERVAL_S: Final = 1.0
"""How often the server looks for frames and answers whose time is over."""


class ConnectionMemory:
    """`freed` gives memory back that is free. Times are of the monotonic clock, in seconds."""

    def __init__(self, *, freed: FreedMemory | None = None) -> None:
        self.frames = HalfFrames()
        self.unsigned_frames = HalfFrames(UNSIGNED_BUDGET_BYTES, UNSIGNED_AHEAD_BYTES)
        """Those of the connections that have not signed a request yet, where access control is on."""
        self.answers = UnreadAnswers()
        self.late_answers = LateAnswers()
        self.input = InputPacing()
        self._freed = freed or FreedMemory()
        self._others: list[Callable[[], int]] = []

    @property
    def used_bytes(self) -> int:
        """What is held now."""
        return self.frames.used_bytes + self.unsigned_frames.used_bytes + self.answers.used_bytes

    def watch(self, held_bytes: Callable[[], int]) -> None:
        """Count what others hold as well when much was freed. It has limits of its own."""
        self._others.append(held_bytes)

    def sweep(self, now_s: float) -> None:
        """End what takes too long; to be called every `SWEEP_INTERVAL_S`."""
        # Before: what is freed here was there.
        self._freed.note_held(self._all_bytes())
        self.frames.sweep(now_s)
        self.unsigned_frames.sweep(now_s)
        self.answers.sweep(now_s)
        self._freed.sweep(self._all_bytes(), now_s)

    def _all_bytes(self) -> int:
        return self.used_bytes + sum([held_bytes() for held_bytes in self._others])
