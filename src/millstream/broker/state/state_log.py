"""The state log: changes of a broker's state as records of a system topic.

A record's body is JSON: a list of changes, each `[kind, key, value]`; the value is null where the key is gone. The
records are in queue 0, and a *state offset* is an offset of that queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage
from millstream.model.state_topics import is_state_topic
from millstream.protocol.record import decode_record
from millstream.store.message_store import MessageStore, PendingRecord

__all__ = [
    "MAX_RECORD_BYTES",
    "STATE_TOPIC",
    "ChangeLog",
    "StateChange",
    "StateLog",
    "decode_changes",
    "is_private_topic",
]

STATE_TOPIC: Final = "rmq_sys_MILLSTREAM_STATE"
"""The system topic of the changes. Clients never read it: users' secrets are among them."""

MAX_RECORD_BYTES: Final = 256 * 1024
"""Bytes of changes in one record; a single change that is larger has a record of its own, up to the store's limit."""

_QUEUE: Final = 0
_READ_AT_ONCE: Final = 256


class StateChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One change: the new value of a key as JSON, null where it is gone. `kind` names the table."""

    kind: str
    key: str
    value: msgspec.Raw

    @property
    def is_removal(self) -> bool:
        """Whether the key is gone."""
        return bytes(self.value) == b"null"


class ChangeLog(Protocol):
    """Where a table writes its changes."""

    def append(self, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        """Write the changes, in this order; on the disk when it returns if `durable`."""


_encode_changes = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(list[StateChange]).decode


def decode_changes(body: bytes) -> list[StateChange]:
    """The changes in a record's body. Raises STORE_FORMAT."""
    try:
        return _decode_changes(body)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"A change of the state cannot be read: {error}.") from None


def is_private_topic(topic: str) -> bool:
    """Whether records of the topic must not be shown to the caller by their place in the log: the broker's own state,
    and that of proxies, which only those read who may ask for its topic."""
    return topic == STATE_TOPIC or is_state_topic(topic)


class StateLog:
    """The state topic of a store. Called from the event loop's thread, as the store's `put` is.

    `append` raises what `put` and `flush_log` of the store raise: DISK_FULL, FILE_NOT_OPENED, STORE_FAILED.
    """

    def __init__(self, store: MessageStore, host: Address) -> None:
        self._store = store
        self._host = host
        self._written_end = self.end

    @property
    def start(self) -> int:
        """The state offset of the oldest change that is kept."""
        return self._store.min_offset(STATE_TOPIC, _QUEUE)

    @property
    def end(self) -> int:
        """The state offset behind the last change that readers may see."""
        return self._store.max_offset(STATE_TOPIC, _QUEUE)

    @property
    def written_end(self) -> int:
        """The state offset behind the last change that was written: all before is confirmed once `end` is there."""
        return self._written_end

    def settle(self) -> bool:
        """Bring all changes to the disk; whether all of them are confirmed as well, so that nothing takes them back."""
        written = self._written_end
        self._store.flush_log()
        return self.end >= written

    def append(self, changes: Sequence[StateChange], *, durable: bool = True) -> None:
        """Write the changes, in this order, in records of about `MAX_RECORD_BYTES`."""
        if not changes:
            return
        records = [PendingRecord(self._message(body), _QUEUE) for body in _bodies(changes)]
        appended = self._store.put(records, despite_watermark=True)
        self._written_end = appended[-1].queue_offset + 1
        if durable:
            self._store.flush_log()

    def changes_from(self, state_offset: int) -> Iterator[tuple[int, list[StateChange]]]:
        """Each visible record from the state offset on: its offset and its changes.

        Raises STORE_FORMAT where a record cannot be read, RECORD_DAMAGED for a damaged one.
        """
        while entries := self._store.entries(STATE_TOPIC, _QUEUE, state_offset, _READ_AT_ONCE):
            for entry in entries:
                body = decode_record(self._store.read(entry)).body
                try:
                    yield entry.queue_offset, _decode_changes(body)
                except msgspec.DecodeError as error:
                    words = f"The state change at state offset {entry.queue_offset} cannot be read: {error}."
                    raise StoreError("STORE_FORMAT", words) from None
            state_offset = entries[-1].queue_offset + 1

    def _message(self, body: bytes) -> OutgoingMessage:
        return OutgoingMessage(topic=STATE_TOPIC, body=body, properties={}, queue_id=_QUEUE, born_host=self._host)


def _bodies(changes: Sequence[StateChange]) -> Iterator[bytes]:
    """The changes as bodies of records, none of which is parted."""
    gathered: list[StateChange] = []
    size_bytes = 0
    for change in changes:
        change_bytes = len(change.kind) + len(change.key) + len(change.value)
        if gathered and size_bytes + change_bytes > MAX_RECORD_BYTES:
            yield _encode_changes(gathered)
            gathered, size_bytes = [], 0
        gathered.append(change)
        size_bytes += change_bytes
    yield _encode_changes(gathered)
