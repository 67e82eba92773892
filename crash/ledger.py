"""What a store promised while it ran, and whether what a crash left keeps it.

Each promise holds from a moment on, which is counted in file steps, so that it can be asked of every later state.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.model.errors import StoreError
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER
from millstream.model.message import OutgoingMessage
from millstream.protocol.record import decode_record, outline_record
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import PendingRecord

__all__ = ["Content", "Ledger", "Promised", "Sent", "content_of"]

_READ_AT_ONCE = 1_000_000

Content = dict[tuple[str, int], tuple[int, list[bytes]]]
"""Topic and queue number to the first queue offset and the bodies from there on."""


class Sent(NamedTuple):
    """One record as it was put, and the light queues that have it as well. Bodies are unique within a ledger."""

    topic: str
    queue_id: int
    body: bytes
    light_queues: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Topic and queue number of each queue that has it."""
        return ((self.topic, self.queue_id), *[(name, LIGHT_QUEUE_NUMBER) for name in self.light_queues])

    def pending(self) -> PendingRecord:
        message = OutgoingMessage(self.topic, self.body, {"TAGS": f"t{len(self.body) % 3}"})
        return PendingRecord(message, self.queue_id, None, self.light_queues)


class Promised(NamedTuple):
    """How many records, in the order of the log, have reached a level."""

    written: int
    flushed: int
    seen: int
    checkpointed: int


@dataclass
class Ledger:
    """What was put, in the order of the log, and what was promised about it.

    `wiped` holds for each topic from which record on it counts, with the moment from which that is certain and the one
    from which it may be so: a deletion that a crash interrupts goes either way.
    """

    sent: list[Sent] = field(default_factory=list)
    wiped: list[tuple[str, int, int, int]] = field(default_factory=list)
    _moments: dict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: {level: [(-1, 0)] for level in Promised._fields}
    )

    def promise(self, level: str, moment: int, count: int) -> None:
        """From `moment` on the first `count` records have reached the level."""
        held = self._moments[level]
        if count > held[-1][1]:
            held.append((moment, count))

    def at(self, moment: int) -> Promised:
        """The promises that hold at a moment."""
        found = {}
        for level, held in self._moments.items():
            found[level] = held[bisect_right(held, moment, key=lambda pair: pair[0]) - 1][1]
        return Promised(**found)

    def restarted(self, content: Content, scanned_records: int) -> Ledger:
        """The ledger of a store that was opened with this content: all of it is on the disk by then.

        Until its next checkpoint another start may have to scan as many records as this one had to.
        """
        there = {body for _, bodies in content.values() for body in bodies}
        last = max((number for number, sent in enumerate(self.sent) if sent.body in there), default=-1)
        fresh = Ledger([sent for sent in self.sent[: last + 1] if sent.body in there])
        for level in ("written", "flushed"):
            fresh.promise(level, -1, len(fresh.sent))
        fresh._moments["checkpointed"] = [(-1, len(fresh.sent) - scanned_records)]
        return fresh

    def broken_by(self, content: Content, moment: int, at_least: int) -> str | None:
        """What is wrong with the content of a store after a crash at a moment, or None.

        All of the first `at_least` records must be there, and beyond them a gapless piece of what was put next.
        """
        certain: dict[str, int] = {}
        possible: dict[str, int] = {}
        for topic, first, begun, ended in self.wiped:
            if begun <= moment:
                possible[topic] = first
            if ended <= moment:
                certain[topic] = first
        choices = [certain] if certain == possible else [certain, possible]
        wrong = [self._differs(content, at_least, first) for first in choices]
        return None if None in wrong else wrong[0]

    def _differs(self, content: Content, at_least: int, first: dict[str, int]) -> str | None:
        queues: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
        for number, sent in enumerate(self.sent):
            for place in sent.places:
                if number >= first.get(place[0], 0):
                    queues.setdefault(place, []).append((number, sent.body))
        reached, missing = -1, len(self.sent)
        for key, (min_offset, bodies) in content.items():
            expected = queues.get(key, [])
            if min_offset and bodies:
                return f"{key} starts at {min_offset}"
            if bodies != [body for _, body in expected[: len(bodies)]]:
                return f"{key} holds {_short(bodies)}, and {_short([body for _, body in expected])} was put"
            if bodies:
                reached = max(reached, expected[len(bodies) - 1][0])
        for key, expected in queues.items():
            kept = len(content.get(key, (0, []))[1])
            if kept < len(expected):
                missing = min(missing, expected[kept][0])
        if missing < at_least:
            return f"record {missing} is lost, and {at_least} were promised"
        if missing < reached:
            return f"there is a hole: record {missing} is lost and {reached} is there"
        return None


def _short(bodies: list[bytes]) -> list[bytes]:
    return [body[:12] for body in bodies]


def content_of(store: MessageStore, keys: set[tuple[str, int]]) -> Content:
    """The queues as a reader finds them. Raises StoreError for a record that cannot be read."""
    content: Content = {}
    for topic, queue_id in keys:
        start, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        entries = store.entries(topic, queue_id, start, _READ_AT_ONCE)
        if [entry.queue_offset for entry in entries] != list(range(start, end)):
            raise StoreError("RECORD_DAMAGED", f"The entries of {topic} {queue_id} do not count from {start} to {end}.")
        bodies = []
        for entry in entries:
            record = store.read(entry)
            read, place = decode_record(record), (topic, queue_id, entry.queue_offset)
            light_places = [(name, LIGHT_QUEUE_NUMBER, offset) for name, offset in outline_record(record).light_places]
            if place not in ((read.topic, read.queue_id, read.queue_offset), *light_places):
                raise StoreError("RECORD_DAMAGED", f"{topic} {queue_id} {entry.queue_offset} leads to another record.")
            bodies.append(read.body)
        content[topic, queue_id] = (start, bodies)
    return content
