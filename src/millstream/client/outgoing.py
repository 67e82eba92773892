"""Prepares a message for sending: its id, properties, queue and batch."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millstream.client import requests
from millstream.client.values import QueueAddress
from millstream.model import properties as names
from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.filter import java_hash_code
from millstream.model.message import Message
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item

__all__ = ["MessageIds", "OutgoingBatch", "QueueSelector", "outgoing_properties"]


_ANY_ADDRESS = ("192.0.2.1", 9)
"""An address of the documentation range: connecting a datagram socket sends nothing but finds our own address."""


class MessageIds:
    """Makes unique keys; also right after a fork, where parent and child would else make the same ones."""

    def __init__(self) -> None:
        self._process = -1
        self._prefix = ""
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self) -> str:
        """The next id, 32 hex digits."""
        process = os.getpid()
        if process != self._process:
            self._process = process
            start = _own_address() + (process & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
            self._prefix = start.hex().upper()
            self._counter = int.from_bytes(os.urandom(2), "big")
        now_ms = time.time_ns() // 1_000_000
        if now_ms >= self._month_end_ms:
            self._begin_month()
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}{self._counter:04X}"

    def _begin_month(self) -> None:
        today = time.gmtime()
        days_before, seconds_today = today.tm_mday - 1, today.tm_hour * 3600 + today.tm_min * 60 + today.tm_sec
        start_s = int(time.time()) - seconds_today - days_before * 86_400
        self._month_start_ms = start_s * 1000
        # 28 days at least; asking again before the month's end is harmless.
        self._month_end_ms = (start_s + max(28, today.tm_mday) * 86_400) * 1000


def _own_address() -> bytes:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ANY_ADDRESS)
            return socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return socket.inet_aton("127.0.0.1")


def outgoing_properties(message: Message, message_id: str) -> dict[str, str]:
    """The properties as stored: the reserved ones first, then the application's own.

    Refuses (ILLEGAL_PROPERTY) a reserved name and the characters that separate properties; the rest is the broker's
    to judge.
    """
    held = {names.UNIQUE_KEY: message_id, "WAIT": "true"}
    names.put_sorting_properties(
        held, message.tag, message.keys, message.message_group, message.priority, message.lite_topic
    )
    if message.delivery_timestamp_ms is not None:
        held[names.DELIVERY_TIME_MS] = str(message.delivery_timestamp_ms)
    user = message.user_properties
    if user:
        for name in user:
            if name in names.RESERVED:
                raise MessageRefused("ILLEGAL_PROPERTY", f"{name!r} is a reserved name, not one for a user property.")
        held.update(user)
    text = "".join(held) + "".join(held.values())
    if "\x01" in text or "\x02" in text:
        raise MessageRefused(
            "ILLEGAL_PROPERTY", "A tag, key or property has one of the characters \\x01 and \\x02, which separate them."
        )
    if not text.isascii() and not _is_unicode(text):
        raise MessageRefused("ILLEGAL_PROPERTY", "A tag, key or property is not Unicode (half of a pair).")
    return held


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(slots=True)
class OutgoingBatch:
    """Messages that go to one queue in one request. `positions` say where they stand in the caller's list."""

    queue: QueueAddress
    positions: list[int] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    items: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    may_move: bool = True
    """Whether another queue will do: it has no message of a message group."""

    def has_room(self, size_bytes: int) -> bool:
        """Whether an item of that size still fits; the first one always does."""
        return not self.items or (
            len(self.items) < requests.MAX_BATCH_MESSAGES and self.size_bytes + size_bytes <= requests.MAX_BATCH_BYTES
        )

    def add(self, position: int, message_id: str, item: bytes, message: Message) -> None:
        """Append one message."""
        self.may_move = self.may_move and message.message_group is None
        self.positions.append(position)
        self.message_ids.append(message_id)
        self.items.append(item)
        self.size_bytes += len(item)

    def request(self, group: str) -> RemotingCommand:
        """The request that stores the batch."""
        return requests.send_batch(self.queue, self.items, group=group)


class QueueSelector:
    """Chooses queues in turn; one instance per producer, so that the turn goes on from call to call."""

    def __init__(self) -> None:
        self._ids = MessageIds()
        self._turn = 0

    def next_id(self) -> str:
        """A new message id."""
        return self._ids.next()

    def queue(self, message: Message, queues: Sequence[QueueAddress], *, by_key: bool = False) -> QueueAddress:
        """The queue for one message; FORBIDDEN if there is none. With `by_key` one key has one queue."""
        if not queues:
            raise NameRefused("FORBIDDEN", f"The topic {message.topic[:200]!r} has no writable queue.")
        if message.message_group is not None:
            return queues[java_hash_code(message.message_group) % len(queues)]
        if by_key and message.keys:
            return queues[java_hash_code(message.keys[0]) % len(queues)]
        self._turn += 1
        return queues[self._turn % len(queues)]

    def batches(
        self,
        messages: Sequence[Message],
        queues_of: Callable[[str], Sequence[QueueAddress]],
        *,
        by_key: bool = False,
    ) -> list[list[OutgoingBatch]]:
        """One list of batches for each queue that gets messages; each queue's messages keep their order.

        With `by_key` the messages of a key have one queue, as those of a message group have.
        """
        lists: dict[QueueAddress, list[OutgoingBatch]] = {}
        for position, message in enumerate(messages):
            queue = self.queue(message, queues_of(message.topic), by_key=by_key)
            message_id, item = self._item(message)
            batches = lists.setdefault(queue, [])
            if not batches or not batches[-1].has_room(len(item)):
                batches.append(OutgoingBatch(queue, may_move=not by_key))
            batches[-1].add(position, message_id, item, message)
        return list(lists.values())

    def ordered_batches(
        self, messages: Sequence[Message], queues_of: Callable[[str], Sequence[QueueAddress]]
    ) -> Iterator[OutgoingBatch]:
        """Batches of neighbours, to be stored one after another; the queues take turns by batch."""
        batch: OutgoingBatch | None = None
        for position, message in enumerate(messages):
            message_id, item = self._item(message)
            fixed = message.message_group is not None
            if batch is None or batch.queue.topic != message.topic or not batch.has_room(len(item)) or fixed:
                queue = self.queue(message, queues_of(message.topic))
                if batch is None or batch.queue != queue or not batch.has_room(len(item)):
                    if batch is not None:
                        yield batch
                    batch = OutgoingBatch(queue)
            batch.add(position, message_id, item, message)
        if batch is not None:
            yield batch

    def _item(self, message: Message) -> tuple[str, bytes]:
        message_id = self._ids.next()
        return message_id, encode_batch_item(message.body, outgoing_properties(message, message_id))
