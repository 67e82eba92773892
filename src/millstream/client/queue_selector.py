"""Which queue each message goes to, and which messages share a request.

Messages with a message group always go to the same queue of their topic (RocketMQ's choice: the group's Java hash
modulo the number of queues); the others take the queues in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millstream.client import requests
from millstream.client.outgoing import MessageIds, outgoing_properties
from millstream.client.values import QueueAddress
from millstream.model.errors import NameRefused
from millstream.model.filter import java_hash_code
from millstream.model.message import Message
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import encode_batch_item

__all__ = ["OutgoingBatch", "QueueSelector"]


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
