"""Reading messages for consumers: what is damaged is named in the log and passed over, never served."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from millstream.model.errors import NameRefused, StoreError
from millstream.model.message import StoredMessage
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.message_store import IndexEntry, MessageStore

__all__ = ["MAX_SCANNED_ENTRIES", "Reader", "check_readable"]

_log = logging.getLogger(__name__)

MAX_SCANNED_ENTRIES = 16_384
"""Index entries that one request looks at in one turn of the event loop, so that a filter that matches nothing in a
long queue does not hold up everybody else."""

_READ = int(Permission.READ)


def check_readable(topic: TopicConfig, queue_id: int | None) -> None:
    """Refuse to read a topic without permission (FORBIDDEN) or a queue that it does not have (QUEUE_NOT_FOUND)."""
    if not int(topic.permission) & _READ or topic.read_queues < 1:
        raise NameRefused("FORBIDDEN", f"The topic {topic.name!r} has no readable queue.")
    if queue_id is not None and not 0 <= queue_id < topic.read_queues:
        raise NameRefused(
            "QUEUE_NOT_FOUND",
            f"The topic {topic.name!r} has {topic.read_queues} readable queues; {queue_id} is none of them.",
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """Records of the store, whole or None."""

    store: MessageStore

    def record(self, topic: str, queue_id: int, entry: IndexEntry) -> bytes | memoryview | None:
        """The record as stored; None, and an error in the log, if it is damaged."""
        try:
            return self.store.read(entry)
        except StoreError as error:
            _log_damage(error, topic, queue_id, entry)
            return None

    def message(self, topic: str, queue_id: int, entry: IndexEntry) -> StoredMessage | None:
        """The message; None, and an error in the log, if it is damaged."""
        try:
            return decode_record(self.store.read(entry), verify=False)
        except StoreError as error:
            _log_damage(error, topic, queue_id, entry)
            return None

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """The message at an offset; None if it is damaged or the queue no longer has it."""
        for entry in self.store.entries(topic, queue_id, queue_offset, 1):
            if entry.queue_offset == queue_offset:
                return self.message(topic, queue_id, entry)
        return None


def _log_damage(error: StoreError, topic: str, queue_id: int, entry: IndexEntry) -> None:
    if error.name != "RECORD_DAMAGED":
        raise error
    _log.error(
        "Passed over a damaged message: topic %s, queue %d, queue offset %d, log offset %d, %d bytes. %s",
        topic, queue_id, entry.queue_offset, entry.log_offset, entry.size_bytes, error,
    )  # fmt: skip
