"""Histories as clients of a correct queue or register would write them: a sequential model under random concurrency.

Each operation takes place at a point of its own; its call and its answer lie around that point, over several others.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Final
from zlib import crc32

from crash.history import Event, Kind
from crash.queue_linearizability import LogEntry, QueueLog
from crash.register_linearizability import RegisterValue

__all__ = ["INITIAL", "QUEUE", "REGISTER", "QueueModel", "RegisterModel"]

QUEUE: Final = "q0"
REGISTER: Final = "broker-a"
INITIAL: Final = RegisterValue(1, "first")

_STEP_S: Final = 10.0
_MAX_LAG_S: Final = 35.0
_PULLED_AT_ONCE: Final = 4


class _Clock:
    """Gives each operation its point, and the times of its call and of its answer."""

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self._point_s = 100.0

    def span(self, max_lag_s: float = _MAX_LAG_S) -> tuple[float, float]:
        """When the next operation is called and answered."""
        self._point_s += _STEP_S
        before_s, after_s = (self._choose.uniform(0, max_lag_s) for _ in range(2))
        return self._point_s - before_s, self._point_s + after_s

    def rest(self) -> None:
        """Let all that is under way be answered."""
        self._point_s += 2 * _MAX_LAG_S


class QueueModel:
    """Two queues, with sends of every outcome, reads of the max offset and pulls; at the end a few in quiet times.

    The quiet ones at the end of QUEUE are the sends `quiet-0` to `quiet-3` and the read `quiet-read`.
    """

    def __init__(self, choose: Random, operations: int) -> None:
        self.events: list[Event] = []
        self._choose = choose
        self._clock = _Clock(choose)
        self._entries: dict[str, list[LogEntry]] = defaultdict(list)
        for number in range(operations):
            queue = choose.choice((QUEUE, "q1"))
            choose.choices((self._send, self._read, self._pull), (6, 2, 2))[0](f"{queue}-{number}", queue)
        for number in range(4):
            self._clock.rest()
            self._store(f"quiet-{number}", QUEUE, *self._clock.span(0))
        self._clock.rest()
        self._read("quiet-read", QUEUE)

    @property
    def logs(self) -> dict[str, QueueLog]:
        """What is in each queue in the end."""
        return {queue: QueueLog(entries) for queue, entries in self._entries.items()}

    def _send(self, name: str, queue: str) -> None:
        outcome = self._choose.choices(("ok", "unknown", "missing", "fail"), (8, 1, 1, 1))[0]
        called_s, answered_s = self._clock.span()
        if outcome == "ok":
            self._store(name, queue, called_s, answered_s)
            return
        self._invoke(name, called_s)
        if outcome == "fail":
            self.events.append(Event(at_s=answered_s, kind="fail", message=name))
        elif outcome == "unknown":
            # It may come to the log long after the client gave up.
            self.events.append(Event(at_s=called_s + 1, kind="unknown", message=name))
            self._append(name, queue)

    def _store(self, name: str, queue: str, called_s: float, answered_s: float) -> None:
        self._invoke(name, called_s)
        offset = self._append(name, queue)
        self.events.append(Event(at_s=answered_s, kind="ok", message=name, queue=queue, queue_offset=offset))

    def _invoke(self, name: str, at_s: float) -> None:
        self.events.append(Event(at_s=at_s, kind="invoke", message=name, checksum=_checksum(name)))

    def _append(self, name: str, queue: str) -> int:
        entries = self._entries[queue]
        entries.append(LogEntry(len(entries), name, _checksum(name)))
        return len(entries) - 1

    def _read(self, name: str, queue: str) -> None:
        called_s, answered_s = self._clock.span()
        self.events += [
            Event(at_s=called_s, kind="reading", message=name, queue=queue),
            Event(at_s=answered_s, kind="read", message=name, queue_offset=len(self._entries[queue])),
        ]

    def _pull(self, name: str, queue: str) -> None:
        called_s, answered_s = self._clock.span()
        entries = self._entries[queue]
        begin = self._choose.randint(0, len(entries))
        self.events.append(Event(at_s=called_s, kind="reading", message=name, queue=queue, queue_offset=begin))
        self.events += [
            Event(
                at_s=answered_s,
                kind="delivered",
                message=entry.message,
                checksum=entry.checksum,
                queue=queue,
                queue_offset=entry.queue_offset,
                read_id=name,
            )
            for entry in entries[begin : begin + _PULLED_AT_ONCE]
        ]
        self.events.append(Event(at_s=answered_s, kind="read", message=name, queue_offset=len(entries)))


class RegisterModel:
    """One register, with reads, alterations and elections of every outcome; at the end a few in quiet times.

    The quiet ones at the end are the alterations `quiet-0` to `quiet-2`, each followed by a read: `quiet-read-0` ...
    """

    def __init__(self, choose: Random, operations: int) -> None:
        self.events: list[Event] = []
        self._choose = choose
        self._clock = _Clock(choose)
        self._state = INITIAL
        for number in range(operations):
            choose.choices((self._read, self._alter, self._elect), (5, 4, 1))[0](f"{number}")
        for number in range(3):
            self._clock.rest()
            self._change(f"quiet-{number}", self._state.epoch, 1, *self._clock.span(0))
            self._clock.rest()
            self._read(f"quiet-read-{number}")

    def _read(self, name: str) -> None:
        called_s, answered_s = self._clock.span()
        self._note("reading", name, called_s)
        self._note("read", name, answered_s, *self._state)

    def _alter(self, name: str) -> None:
        expected = max(1, self._state.epoch - self._choose.choice((0, 0, 0, 1)))
        called_s, answered_s = self._clock.span()
        if expected == self._state.epoch:
            self._change(name, expected, 1, called_s, answered_s)
        else:
            self._note("change", name, called_s, expected, name)
            self._note("fenced", name, answered_s)

    def _elect(self, name: str) -> None:
        self._change(name, -1, self._choose.randint(1, 2), *self._clock.span())

    def _change(self, name: str, expected: int, step: int, called_s: float, answered_s: float) -> None:
        """With one of five outcomes; quiet changes are all answered."""
        is_quiet = name.startswith("quiet")
        outcome = (
            "changed" if is_quiet else self._choose.choices(("changed", "lost", "never", "refused"), (7, 1, 1, 1))[0]
        )
        self._note("change", name, called_s, expected, name)
        if outcome in ("changed", "lost"):
            self._state = RegisterValue(self._state.epoch + step, name)
        if outcome == "changed":
            self._note("changed", name, answered_s, *self._state)
        elif outcome == "refused":
            self._note("refused", name, answered_s)

    def _note(self, kind: Kind, name: str, at_s: float, epoch: int = -1, value: str = "") -> None:
        self.events.append(Event(at_s=at_s, kind=kind, message=name, register=REGISTER, epoch=epoch, value=value))


def _checksum(name: str) -> int:
    """Of a body that no other message has."""
    return crc32(name.encode())
