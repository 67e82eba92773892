"""Previews what a pop would return, without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from millstream.broker.pop.pop_scan import MAX_POP_MESSAGES
from millstream.broker.pop.popper import Popper
from millstream.broker.queues.ledger import Ledger
from millstream.broker.queues.puller import MAX_WAIT_MS
from millstream.broker.queues.reader import check_readable
from millstream.broker.queues.retry_lines import origin_of, restore_topic
from millstream.model.message import StoredMessage
from millstream.model.operations import PopRequest
from millstream.model.topic import RETRY_PREFIX

__all__ = ["Preview"]

_RETURNED_ENTRIES = 256
"""Messages of a retry topic that one look reads."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Looks at what `popper` would deliver to a group; filters do not count."""

    popper: Popper

    def messages(self, group: str, topic: str, queue_id: int | None, max_messages: int) -> list[StoredMessage]:
        """What would be delivered next, `max_messages` (32 at most) in the order of the queues.

        Raises TOPIC_NOT_FOUND, FORBIDDEN, QUEUE_NOT_FOUND, GROUP_NOT_FOUND, GROUP_DISABLED.
        """
        found: list[StoredMessage] = []
        limit = min(max(1, max_messages), MAX_POP_MESSAGES)
        numbers = self._queues(group, topic, queue_id)
        for message in self._look_at_retries(group, topic):
            found.append(message)
            if len(found) >= limit:
                return found
        return found + self.of_queues(group, topic, numbers, limit - len(found))

    def of_queues(self, group: str, topic: str, queue_ids: Iterable[int], limit: int) -> list[StoredMessage]:
        """The same of these queues alone, `limit` at most."""
        found: list[StoredMessage] = []
        for number in queue_ids:
            ledger = self.popper.offsets.ledger(group, topic, number)
            for message in self._messages(topic, number, ledger, self._cursor(group, topic, number), limit):
                found.append(message)
                if len(found) >= limit:
                    return found
        return found

    def count(self, group: str, topic: str, queue_id: int | None) -> int:
        """How many messages have not been delivered to the group; raises as `messages`."""
        store = self.popper.reader.store
        return sum(
            max(store.max_offset(topic, number) - self._cursor(group, topic, number), 0)
            for number in self._queues(group, topic, queue_id)
        )

    async def wait(self, request: PopRequest) -> bool:
        """Whether there is something to pop, at once or within `wait_ms`; raises as `messages`, TOO_MANY_REQUESTS."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        while not self.messages(request.group, request.topic, request.queue_id, 1):
            remaining_s = deadline_s - loop.time()
            if remaining_s <= 0 or not await self.popper.wait(request, remaining_s):
                return False
            # The word was for somebody who takes what is there.
            self.popper.pass_on(request)
        return True

    def _queues(self, group: str, topic: str, queue_id: int | None) -> range | list[int]:
        config = self.popper.topics.get(topic)
        check_readable(config, queue_id)
        self.popper.group_of(group, topic)
        return range(config.read_queues) if queue_id is None else [queue_id]

    def _cursor(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group has not been yet."""
        offsets, reader = self.popper.offsets, self.popper.reader
        ledger = offsets.ledger(group, topic, queue_id)
        position = offsets.committed_offset(group, topic, queue_id) if ledger is None else ledger.cursor
        if position is None:
            position = reader.first_offset(self.popper.group_of(group, topic), topic, queue_id)
        return max(position, reader.store.min_offset(topic, queue_id))

    def _look_at_retries(self, group: str, topic: str) -> Iterator[StoredMessage]:
        """What of the topic waits in the group's retry topic, as far as one look goes: it lies among others there."""
        config, retry_topic = self.popper.group_of(group, topic), RETRY_PREFIX + group
        for queue_id, ledger in self.popper.list_retry_queues(PopRequest(group, topic, 1), config):
            for message in self._messages(retry_topic, queue_id, ledger, ledger.cursor, _RETURNED_ENTRIES):
                if origin_of(message) == topic:
                    yield restore_topic(message)

    def _messages(
        self, topic: str, queue_id: int, ledger: Ledger | None, cursor: int, limit: int
    ) -> Iterator[StoredMessage]:
        """What is visible again, then what is new."""
        reader = self.popper.reader
        if ledger is not None:
            now_ms = self.popper.clock.now_ms()
            for delivery in ledger.in_flight:
                if delivery.visible_ms <= now_ms:
                    message = reader.message_at(topic, queue_id, delivery.queue_offset)
                    if message is not None:
                        yield message
            if ledger.room <= 0:
                return
        for entry in reader.entries(topic, queue_id, cursor, limit):
            message = reader.message(topic, queue_id, entry)
            if message is not None:
                yield message
