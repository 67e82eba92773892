"""Holds what clients saw of queues against one order of all that happened: an append-only log, checked in O(n log n).

The final log gives each message its place k. The history is linearizable if there are times T0 <= T1 <= ..., at which
the messages came to their places, such that each T lies within its send, each read of the max offset n within
[T(n-1), T(n)], and each delivery behind its T. All of these are bounds of a single T from below (a send's invocation,
the invocation of a read that did not see it) or from above (a send's answer, a delivery, the answer of a read that saw
it). So such times exist exactly if no lower bound of a place is later than an upper bound of it or of a later place.
This is the idea of Elle (Kingsbury and Alvaro, VLDB 2020): unique values and append-only lists show their own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crash.checker import describe_broken
from crash.history import Event

__all__ = ["LogEntry", "QueueLog", "QueueVerdict", "check_queues"]


class LogEntry(NamedTuple):
    """One message of a final log: its place, its name, and the CRC-32 of its body."""

    queue_offset: int
    message: str
    checksum: int


@dataclass(frozen=True, slots=True)
class QueueLog:
    """What is in a queue once all is over, by offset."""

    entries: Sequence[LogEntry]
    min_offset: int = 0
    """What was before is gone by retention, and not lost."""

    @property
    def max_offset(self) -> int:
        """One more than the last offset."""
        return self.entries[-1].queue_offset + 1 if self.entries else self.min_offset


@dataclass
class QueueVerdict:
    """What a history shows of its queues. All but the figures must be empty."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged, or seen by a reader, and not in the final log."""
    altered: list[str] = field(default_factory=list)
    """Delivered or in the log with another body."""
    reordered: list[str] = field(default_factory=list)
    """Elsewhere than was acknowledged, or before what was acknowledged or seen before it was sent."""
    duplicated: list[str] = field(default_factory=list)
    """At two places of the logs. A client that repeats its sends makes such ones."""
    phantom: list[str] = field(default_factory=list)
    """Delivered or in the log, though nobody sent it, it was surely refused, or it was sent to another queue."""
    stale_reads: list[str] = field(default_factory=list)
    """Reads at the master that did not see what was acknowledged, or seen, before they began."""
    double_offsets: list[str] = field(default_factory=list)
    """Offsets that were told for two messages: by answers, deliveries or the log."""
    holes: list[str] = field(default_factory=list)
    """Offsets of the final log that have no message."""
    acknowledged: int = 0
    unknown: int = 0
    reads: int = 0

    def broken(self) -> list[str]:
        """One line for each kind of broken promise."""
        return describe_broken({kind: found for kind, found in vars(self).items() if isinstance(found, list)})


def check_queues(events: Sequence[Event], logs: Mapping[str, QueueLog], *, max_stale_s: float = 0.0) -> QueueVerdict:
    """The verdict over the queues of which there is a final log; what was done to others is passed over.

    Messages have unique names and bodies. A send with an unknown outcome may be in the log or not, at any place that
    does not contradict its invocation. `max_stale_s` is how long a former master may go on to answer reads, its lease.
    """
    history = _read_history(events)
    verdict = QueueVerdict(reads=sum(read.answered is not None for read in history.reads.values()))
    places: dict[str, tuple[str, int]] = {}
    for queue, log in logs.items():
        _check_log(queue, log, history, places, verdict)
    _check_answers(history, logs, places, verdict)
    _check_deliveries(history, logs, places, verdict)
    _check_offsets(history, logs, verdict)
    _check_reads(history, logs, verdict)
    for queue, log in logs.items():
        lower, upper = _list_bounds(queue, log.min_offset, history, places)
        _check_times(queue, lower, upper, verdict, max_stale_s)
    return verdict


@dataclass(slots=True)
class _Send:
    invoked: Event
    answered: Event | None = None

    @property
    def outcome(self) -> str:
        return "unknown" if self.answered is None else self.answered.kind


@dataclass(slots=True)
class _Read:
    began: Event
    answered: Event | None = None
    delivered: list[Event] = field(default_factory=list)


class _History(NamedTuple):
    sends: dict[str, _Send]
    reads: dict[str, _Read]
    delivered: list[Event]


def _read_history(events: Sequence[Event]) -> _History:
    sends = {event.message: _Send(event) for event in events if event.kind == "invoke"}
    reads = {event.message: _Read(event) for event in events if event.kind == "reading" and event.queue}
    delivered = [event for event in events if event.kind == "delivered" and event.queue and event.queue_offset >= 0]
    for event in events:
        if event.kind in ("ok", "fail", "unknown"):
            sends[event.message].answered = event
        elif event.kind == "read" and event.message in reads:
            reads[event.message].answered = event
    for event in delivered:
        if event.read_id:
            reads[event.read_id].delivered.append(event)
    return _History(sends, reads, delivered)


def _check_log(
    queue: str, log: QueueLog, history: _History, places: dict[str, tuple[str, int]], verdict: QueueVerdict
) -> None:
    expected = log.min_offset
    for entry in log.entries:
        verdict.holes += [f"{offset} of {queue}" for offset in range(expected, entry.queue_offset)]
        expected = entry.queue_offset + 1
        _check_body(entry.message, entry.checksum, queue, history, verdict)
        first = places.setdefault(entry.message, (queue, entry.queue_offset))
        if first != (queue, entry.queue_offset):
            verdict.duplicated.append(
                f"{entry.message} at {first[1]} of {first[0]} and {entry.queue_offset} of {queue}"
            )


def _check_body(name: str, checksum: int, queue: str, history: _History, verdict: QueueVerdict) -> None:
    send = history.sends.get(name)
    if send is None or send.outcome == "fail" or send.invoked.queue not in ("", queue):
        verdict.phantom.append(f"{name} of {queue}")
    elif checksum != send.invoked.checksum:
        verdict.altered.append(f"{name} of {queue}")


def _check_answers(
    history: _History, logs: Mapping[str, QueueLog], places: Mapping[str, tuple[str, int]], verdict: QueueVerdict
) -> None:
    for name, send in history.sends.items():
        verdict.unknown += send.outcome == "unknown"
        if send.answered is None or send.outcome != "ok" or send.answered.queue not in logs:
            continue
        verdict.acknowledged += 1
        queue, offset = send.answered.queue, send.answered.queue_offset
        found = places.get(name)
        if found is None:
            # Without an offset nobody knows whether retention had it.
            if offset >= logs[queue].min_offset or logs[queue].min_offset == 0:
                verdict.lost.append(f"{name} of {queue}")
        elif offset >= 0 and found != (queue, offset):
            verdict.reordered.append(f"{name}: answered {offset} of {queue}, is at {found[1]} of {found[0]}")


def _check_deliveries(
    history: _History, logs: Mapping[str, QueueLog], places: Mapping[str, tuple[str, int]], verdict: QueueVerdict
) -> None:
    for event in history.delivered:
        log = logs.get(event.queue)
        if log is None:
            continue
        _check_body(event.message, event.checksum, event.queue, history, verdict)
        if event.message not in places and event.queue_offset >= log.min_offset:
            verdict.lost.append(f"{event.message}, read at {event.queue_offset} of {event.queue}")


def _check_offsets(history: _History, logs: Mapping[str, QueueLog], verdict: QueueVerdict) -> None:
    """Whoever speaks of an offset speaks of the same message."""
    known: dict[tuple[str, int], str] = {}
    for queue, offset, name in _offsets_told(history, logs):
        other = known.setdefault((queue, offset), name)
        if other != name:
            verdict.double_offsets.append(f"{offset} of {queue}: {other} and {name}")


def _offsets_told(history: _History, logs: Mapping[str, QueueLog]) -> Iterable[tuple[str, int, str]]:
    for queue, log in logs.items():
        yield from ((queue, entry.queue_offset, entry.message) for entry in log.entries)
    for name, send in history.sends.items():
        answer = send.answered
        if answer is not None and answer.kind == "ok" and answer.queue in logs and answer.queue_offset >= 0:
            yield answer.queue, answer.queue_offset, name
    yield from ((event.queue, event.queue_offset, event.message) for event in history.delivered if event.queue in logs)


def _check_reads(history: _History, logs: Mapping[str, QueueLog], verdict: QueueVerdict) -> None:
    """A pull brings all from its offset on, and a max offset is not beyond what is there in the end."""
    for name, read in history.reads.items():
        queue, log = read.began.queue, logs.get(read.began.queue)
        if log is None:
            continue
        if read.answered is not None and read.answered.queue_offset > log.max_offset:
            verdict.lost.append(f"{read.answered.queue_offset - 1} of {queue}, seen by {name}")
        offsets = [event.queue_offset for event in read.delivered]
        if offsets and read.began.queue_offset >= 0:
            missed = sorted({*range(read.began.queue_offset, max(offsets) + 1)}.difference(offsets))
            verdict.stale_reads += [f"{name} of {queue}: brought what is behind {offset}, not it" for offset in missed]


class _Bound(NamedTuple):
    """A bound of the time at which the message at an offset came there, and of all behind it or before it."""

    queue_offset: int
    at_s: float
    name: str
    is_read: bool = False


def _check_times(
    queue: str, lower: list[_Bound], upper: list[_Bound], verdict: QueueVerdict, max_stale_s: float
) -> None:
    upper.sort(key=lambda bound: bound.queue_offset)
    earliest: _Bound | None = None
    for bound in sorted(lower, key=lambda bound: bound.queue_offset, reverse=True):
        while upper and upper[-1].queue_offset >= bound.queue_offset:
            one = upper.pop()
            earliest = one if earliest is None or one.at_s < earliest.at_s else earliest
        if earliest is None:
            continue
        words = f"{bound.name} of {queue}"
        if not bound.is_read and bound.at_s > earliest.at_s:
            verdict.reordered.append(f"{words}: at {bound.queue_offset}, sent after {earliest.name} was behind it")
        elif bound.is_read and bound.at_s - max_stale_s > earliest.at_s:
            verdict.stale_reads.append(f"{words}: nothing at {bound.queue_offset}, began after {earliest.name}")


def _list_bounds(
    queue: str, min_offset: int, history: _History, places: Mapping[str, tuple[str, int]]
) -> tuple[list[_Bound], list[_Bound]]:
    """The lower and the upper bounds of all offsets of a queue."""
    lower: list[_Bound] = []
    upper = [
        _Bound(event.queue_offset, event.at_s, event.message) for event in history.delivered if event.queue == queue
    ]
    for name, send in history.sends.items():
        offset = _find_offset(queue, name, send, places)
        if offset >= 0:
            lower.append(_Bound(offset, send.invoked.at_s, name))
            if send.answered is not None and send.answered.kind == "ok":
                upper.append(_Bound(offset, send.answered.at_s, name))
    for name, read in history.reads.items():
        if read.began.queue == queue and read.answered is not None:
            upper.append(_Bound(read.answered.queue_offset - 1, read.answered.at_s, name))
            if read.began.broker_id == 0:
                lower += _list_unseen(name, read, read.answered, min_offset)
    return lower, upper


def _find_offset(queue: str, name: str, send: _Send, places: Mapping[str, tuple[str, int]]) -> int:
    """Where the message is, or was said to be; -1 if not in this queue."""
    place = places.get(name)
    if place is not None:
        return place[1] if place[0] == queue else -1
    answer = send.answered
    return answer.queue_offset if answer is not None and answer.kind == "ok" and answer.queue == queue else -1


def _list_unseen(name: str, read: _Read, answered: Event, min_offset: int) -> list[_Bound]:
    """What a read of the master did not see: all from its max offset on; if a pull was empty, all from its own on."""
    begin = read.began.queue_offset
    found = [answered.queue_offset] + ([begin] if begin >= min_offset and not read.delivered else [])
    return [_Bound(offset, read.began.at_s, name, is_read=True) for offset in found]
