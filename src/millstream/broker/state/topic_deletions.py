"""At which log offset each topic was deleted, so that a replica deletes it at the same offset.

A topic that is made again begins at offset 0. A replica that kept the old queue would take the new messages for the old
ones, so the deletion is a record of the state log, written before the queues go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from millstream.broker.state.state_log import STATE_TOPIC, ChangeLog, StateChange, decode_changes
from millstream.protocol.record import decode_record
from millstream.store.log_chunk import check_chunk

__all__ = ["DELETION", "TopicDeletions", "split_at_deletions"]

DELETION: Final = "deletion"
"""The kind of the changes; the key is a topic's name in the store."""

_MARK: Final = b'"deletion"'
_HERE: Final = b"true"


class TopicDeletions:
    """Writes deletions; the store carries them out."""

    def __init__(self) -> None:
        self._log: ChangeLog | None = None

    def bind(self, log: ChangeLog) -> None:
        """Write to this log from now on."""
        self._log = log

    def write(self, topics: Sequence[str], *, durable: bool = True) -> None:
        """Write that the messages of these topics, given by their names in the store, are let go.

        On the disk when it returns if `durable`. Raises STORE_FAILED, DISK_FULL, FILE_NOT_OPENED.
        """
        assert self._log is not None, "the state log is not bound"
        self._log.append([StateChange(DELETION, topic, msgspec.Raw(_HERE)) for topic in topics], durable=durable)

    def write_past(self, places: Mapping[str, int]) -> None:
        """Write deletions that are in no record yet, each with the log offset below which messages do not count."""
        assert self._log is not None, "the state log is not bound"
        self._log.append(
            [StateChange(DELETION, topic, msgspec.Raw(b"%d" % place)) for topic, place in places.items()], durable=False
        )


def split_at_deletions(log_offset: int, records: bytes) -> Iterator[tuple[int, bytes, dict[str, int]]]:
    """The chunk in parts, each with its log offset and the topics whose messages below a place in the log go once the
    part is in the log."""
    start = position = 0
    if _MARK in records:
        view = memoryview(records)
        for outline, size_bytes in check_chunk(records, log_offset):
            following = position + size_bytes
            if outline.topic == STATE_TOPIC:
                changes = decode_changes(decode_record(view[position:following]).body)
                end = log_offset + following
                places = {
                    change.key: end if bytes(change.value) == _HERE else int(change.value)
                    for change in changes
                    if change.kind == DELETION
                }
                if places:
                    yield log_offset + start, records[start:following], places
                    start = following
            position = following
    if start < len(records):
        yield log_offset + start, records[start:], {}
