"""Redrive: sends each dead letter once more, to its original topic or to another one."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millstream.broker.delivery.delay import without_delay
from millstream.broker.delivery.half_messages import HALF_OF
from millstream.broker.delivery.sender import Sender
from millstream.broker.pop.dead_letters import ORIGIN_MESSAGE_ID, ORIGIN_TOPIC, REASON, REDRIVE_OF, dead_letter_of
from millstream.broker.queues.reader import Reader
from millstream.broker.queues.topics import DEAD_LETTER_PREFIX
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model import properties as names
from millstream.model.errors import MessageRefused, Refused
from millstream.model.lite import lite_queue
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.operations import DeadLetterPage, DeadLetterQuery, Redriven, RedriveResult
from millstream.protocol.record import decode_record, offset_message_id
from millstream.store.snapshot import Snapshot

__all__ = ["DEAD_LETTER_QUEUE", "MAX_LOOKED_AT", "MAX_REDRIVEN", "OffsetSet", "RedrivenTable", "Redriver"]


DEAD_LETTER_QUEUE = 0
"""The one queue of a dead-letter topic."""

_VERSION = 1


class _RedrivenDocument(Document):
    """Stretches of queue offsets: begin, and end (not included)."""

    groups: dict[str, list[tuple[int, int]]]


class RedrivenTable:
    """The offsets by group. `limit` before use."""

    def __init__(self, snapshot: Snapshot) -> None:
        saved = SavedDocument(snapshot, _RedrivenDocument, noun="redriven dead letters", version=_VERSION)
        self.table = StateTable("redriven", saved, list[tuple[int, int]], self)
        """Its saved form: the stretches of each group."""
        self._groups: dict[str, OffsetSet] = {}

    def make_document(self) -> _RedrivenDocument:
        """All groups' stretches."""
        groups = {group: held.stretches for group, held in self._groups.items() if held.stretches}
        return _RedrivenDocument(version=_VERSION, groups=groups)

    def load_document(self, document: _RedrivenDocument) -> None:
        """Take up the saved stretches."""
        for group, stretches in document.groups.items():
            self.apply_change(group, stretches)

    def apply_change(self, key: str, value: list[tuple[int, int]] | None) -> None:
        """Have these stretches for the group."""
        if value is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = OffsetSet(value)

    def limit(self, max_offset: Callable[[str, int], int | None]) -> None:
        """Forget what lies behind the queues. `max_offset(topic, queue_id)` says where one ends, None if it is gone.

        It may end earlier than when it was saved: other dead letters will have those offsets.
        """
        for group, held in self._groups.items():
            held.drop_from(max_offset(DEAD_LETTER_PREFIX + group, DEAD_LETTER_QUEUE) or 0)

    def find(self, group: str) -> OffsetSet:
        """The group's offsets, to be looked at."""
        return self._groups.get(group, OffsetSet())

    def of(self, group: str) -> OffsetSet:
        """The group's offsets, to be added to."""
        return self._groups.setdefault(group, OffsetSet())

    def forget(self, group: str) -> None:
        """The group's dead letters are deleted: those to come are others. On the disk when this returns."""
        held = self._groups.pop(group, None)
        if held is not None and held.stretches:
            self.table.write(group, None)

    def save(self, group: str) -> None:
        """Put the group's offsets on the disk. Raises STORE_FAILED, DISK_FULL."""
        self.table.write(group, self.find(group).stretches)


class OffsetSet:
    """Offsets of one queue. `stretches` are begin and end (not included), sorted, apart from each other."""

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        held = [(begin, end) for begin, end in stretches if begin < end]
        self._begins = [begin for begin, _ in held]
        self._ends = [end for _, end in held]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The stretches that it was made of, or became."""
        return list(zip(self._begins, self._ends, strict=True))

    def add(self, offset: int) -> None:
        """Hold one offset more; nothing if it is held."""
        if offset in self:
            return
        index = bisect_right(self._begins, offset)
        joins_left = index > 0 and self._ends[index - 1] == offset
        joins_right = index < len(self._begins) and self._begins[index] == offset + 1
        if joins_left and joins_right:
            self._ends[index - 1] = self._ends.pop(index)
            del self._begins[index]
        elif joins_left:
            self._ends[index - 1] = offset + 1
        elif joins_right:
            self._begins[index] = offset
        else:
            self._begins.insert(index, offset)
            self._ends.insert(index, offset + 1)

    def drop_below(self, offset: int) -> None:
        """Forget what lies below `offset`, where the queue begins by now."""
        keep = bisect_right(self._ends, offset)
        del self._begins[:keep], self._ends[:keep]
        if self._begins and self._begins[0] < offset:
            self._begins[0] = offset

    def drop_from(self, offset: int) -> None:
        """Forget what lies at `offset` or behind it, where the queue ends by now."""
        keep = bisect_right(self._begins, offset - 1)
        del self._begins[keep:], self._ends[keep:]
        if self._ends and self._ends[-1] > offset:
            self._ends[-1] = offset


MAX_REDRIVEN: Final = 100
"""Dead letters that one call sends at most."""

MAX_LOOKED_AT: Final = 512
"""Dead letters that one call looks at at most, so that a filter that finds nothing does not hold up everybody else."""

_KEPT_FLAGS: Final = SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_ZLIB
_OWN: Final = frozenset(
    (
        ORIGIN_TOPIC,
        ORIGIN_MESSAGE_ID,
        REASON,
        HALF_OF,
        names.TRANSACTION,
        names.TRANSACTION_ID,
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
    )
)


@dataclass(frozen=True, slots=True)
class _Letter:
    offset: int
    message: StoredMessage


class Redriver:
    """Tells and sends again the dead letters of all groups; calls are from the event loop's thread."""

    def __init__(self, reader: Reader, sender: Sender, redriven: RedrivenTable) -> None:
        self._reader = reader
        self._sender = sender
        self._redriven = redriven
        self._ends: dict[str, int] = {}
        """Where each group's dead letters ended at their first use here: below may be copies that are not noted."""
        self._turn = asyncio.Lock()

    def forget(self, topic: str) -> None:
        """The topic is deleted: if it held dead letters, those of a new one of that name are others."""
        group = topic.removeprefix(DEAD_LETTER_PREFIX)
        if group != topic:
            self._ends.pop(group, None)
            self._redriven.forget(group)

    def page(self, query: DeadLetterQuery) -> DeadLetterPage:
        """Dead letters of the group from an offset on, at most MAX_LOOKED_AT; none if the group never had any."""
        letters, next_offset = self._letters(query, MAX_LOOKED_AT)
        sent = self._redriven.find(query.group)
        found = tuple(dead_letter_of(letter.message, is_redriven=letter.offset in sent) for letter in letters)
        end = self._reader.store.max_offset(DEAD_LETTER_PREFIX + query.group, DEAD_LETTER_QUEUE)
        return DeadLetterPage(found, next_offset, end)

    async def redrive(self, query: DeadLetterQuery, target: str | None = None) -> RedriveResult:
        """Send dead letters again, at most MAX_REDRIVEN, to the topics they come from or to `target`.

        A refused one stays as it is. Raises what storing raises; what was sent before is noted all the same.
        """
        async with self._turn:
            topic = DEAD_LETTER_PREFIX + query.group
            end = self._reader.store.max_offset(topic, DEAD_LETTER_QUEUE)
            if not end:
                return RedriveResult((), 0, 0)
            self._ends.setdefault(query.group, end)
            sent = self._redriven.of(query.group)
            letters, next_offset = self._letters(replace(query, only_waiting=True), MAX_REDRIVEN)
            results: list[Redriven] = []
            try:
                for letter in letters:
                    results.append(await self._redrive_one(query.group, letter, target))
                    if not results[-1].refusal:
                        sent.add(letter.offset)
            except BaseException:
                # Whether the last copy was stored is not known: from now on all are looked for.
                self._ends[query.group] = self._reader.store.max_offset(topic, DEAD_LETTER_QUEUE)
                raise
            finally:
                if any(not result.refusal for result in results):
                    await asyncio.to_thread(self._reader.store.flush_log)
                    sent.drop_below(self._reader.store.min_offset(topic, DEAD_LETTER_QUEUE))
                    self._redriven.save(query.group)
            return RedriveResult(tuple(results), next_offset, self._reader.store.max_offset(topic, DEAD_LETTER_QUEUE))

    async def _redrive_one(self, group: str, letter: _Letter, target: str | None) -> Redriven:
        copy, offset = _copy(group, letter), letter.offset
        message_id = copy.properties[names.UNIQUE_KEY]
        origin = letter.message.properties.get(ORIGIN_TOPIC, "")
        topic = target or origin
        try:
            if not topic:
                words = f"The dead letter at offset {offset} of {group!r} does not say which topic it comes from."
                raise MessageRefused("DEAD_LETTER_ORIGIN_UNKNOWN", words)
            copy = replace(copy, topic=topic)
            if offset < self._ends[group] and await self._is_there(copy):
                return Redriven(offset, message_id, topic)
            if topic == origin:
                await self._sender.send_again(copy)
            else:
                await self._sender.send([copy])
        except Refused as refused:
            return Redriven(offset, message_id, topic, str(refused))
        return Redriven(offset, message_id, topic)

    async def _is_there(self, copy: OutgoingMessage) -> bool:
        """Whether an equal copy was stored before a crash that took the note of it."""
        store, message_id = self._reader.store, copy.properties[names.UNIQUE_KEY]
        lite_topic = copy.properties.get(names.LITE_TOPIC)
        topic = copy.topic if lite_topic is None else lite_queue(copy.topic, lite_topic)
        found = await asyncio.to_thread(store.find_by_key, topic, message_id)
        mark = copy.properties[REDRIVE_OF]
        return any(decode_record(record).properties.get(REDRIVE_OF) == mark for record in found)

    def _letters(self, query: DeadLetterQuery, most: int) -> tuple[list[_Letter], int]:
        """What the query wants, and where to go on."""
        topic = DEAD_LETTER_PREFIX + query.group
        sent = self._redriven.find(query.group)
        limit = max(1, min(query.max_letters, most))
        offset = max(query.offset, self._reader.store.min_offset(topic, DEAD_LETTER_QUEUE))
        end = min(self._reader.store.max_offset(topic, DEAD_LETTER_QUEUE), offset + MAX_LOOKED_AT)
        found: list[_Letter] = []
        while offset < end and len(found) < limit:
            if not (query.only_waiting and offset in sent):
                message = self._reader.message_at(topic, DEAD_LETTER_QUEUE, offset)
                if message is not None and _is_wanted(query, message):
                    found.append(_Letter(offset, message))
            offset += 1
        return found, offset


def _is_wanted(query: DeadLetterQuery, message: StoredMessage) -> bool:
    if not query.since_ms <= message.store_timestamp_ms < query.until_ms:
        return False
    ids = query.message_ids
    return not ids or message.message_id in ids or message.properties.get(ORIGIN_MESSAGE_ID) in ids


def _copy(group: str, letter: _Letter) -> OutgoingMessage:
    """The message as it is sent again: at once, as an ordinary one that is delivered for the first time."""
    message = letter.message
    held: Mapping[str, str] = without_delay(message.properties)
    message_id = message.message_id or held.get(ORIGIN_MESSAGE_ID)
    if not message_id:
        message_id = offset_message_id(message.store_host, message.log_offset)
    kept = {name: value for name, value in held.items() if name not in _OWN}
    return OutgoingMessage(
        topic="",
        body=message.body,
        properties={**kept, names.UNIQUE_KEY: message_id, REDRIVE_OF: f"{group}:{message.log_offset}"},
        system_flag=message.system_flag & _KEPT_FLAGS,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
    )
