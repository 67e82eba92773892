"""The static topics of a broker: which logic queues it stores or stored, in memory and in the state log."""

from __future__ import annotations

from collections.abc import Callable

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import NameRefused, StartRefused
from millstream.model.logic_queue import LogicQueue, TopicMapping
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.snapshot import Snapshot

__all__ = ["StaticTopics", "check_static_topic"]

_VERSION = 1


class _Document(Document):
    topics: list[TopicMapping]


class StaticTopics:
    """The mappings by topic. Changes are on disk before the call returns.

    `on_change` is called with the topic and its new mapping, None where the topic was deleted.
    """

    def __init__(self, snapshot: Snapshot, broker_name: str) -> None:
        saved = SavedDocument(snapshot, _Document, noun="mappings of static topics", version=_VERSION)
        self.table = StateTable("static-topic", saved, TopicMapping, self)
        """Its saved form."""
        self._mappings: dict[str, TopicMapping] = {}
        self._broker_name = broker_name
        self.on_change: list[Callable[[str, TopicMapping | None], None]] = []

    def make_document(self) -> _Document:
        """All mappings."""
        return _Document(version=_VERSION, topics=self.all())

    def load_document(self, document: _Document) -> None:
        """Take up the saved mappings. Raises STATIC_TOPIC_STATE where they are another broker's."""
        for mapping in document.topics:
            self.apply_change(mapping.topic, mapping)

    def apply_change(self, key: str, value: TopicMapping | None) -> None:
        """Have the topic's mapping, or have it no more. Raises STATIC_TOPIC_STATE where it is another broker's."""
        if value is None:
            self._mappings.pop(key, None)
            return
        if value.broker_name != self._broker_name:
            words = f"The static topics are those of broker {value.broker_name!r}, not of {self._broker_name!r}."
            raise StartRefused(
                "STATIC_TOPIC_STATE", words, remedy="Give each broker a name and a directory of its own."
            )
        self._mappings[key] = value

    def find(self, topic: str) -> TopicMapping | None:
        """The topic's mapping; None where the topic's queues are bound to the broker."""
        return self._mappings.get(topic)

    def all(self) -> list[TopicMapping]:
        """All mappings, by topic."""
        return [self._mappings[name] for name in sorted(self._mappings)]

    def led_queue(self, topic: str, number: int) -> LogicQueue:
        """A logic queue that this broker stores. Raises NOT_A_STATIC_TOPIC, QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE."""
        mapping = self._mappings.get(topic)
        if mapping is None:
            raise NameRefused(
                "NOT_A_STATIC_TOPIC", f"The topic {topic[:200]!r} is not static at {self._broker_name!r}."
            )
        if not 0 <= number < mapping.total_queues:
            raise NameRefused(
                "QUEUE_NOT_FOUND",
                f"The topic {mapping.topic!r} has {mapping.total_queues} queues; {number} is none of them.",
            )
        queue = mapping.queues.get(number)
        if queue is None or not queue.leads(self._broker_name):
            raise NameRefused(
                "NOT_LEADER_FOR_QUEUE",
                f"Queue {number} of {mapping.topic!r} is not stored by {self._broker_name!r} now.",
            )
        return queue

    def update(self, mapping: TopicMapping, *, force: bool = False) -> None:
        """Take a new mapping of a topic. Raises STATIC_TOPIC_STATE where it does not fit what is there."""
        present = self._mappings.get(mapping.topic)
        if mapping.broker_name != self._broker_name:
            words = f"The mapping is of broker {mapping.broker_name!r}, but this is {self._broker_name!r}."
            raise NameRefused("STATIC_TOPIC_STATE", words)
        mapping.check()
        new = mapping if present is None else present.update(mapping, force=force)
        if new == present:
            return
        self._write(new.topic, new)

    def forget(self, topic: str) -> None:
        """Drop the mapping of a topic that is deleted; nothing where it is not static."""
        if topic in self._mappings:
            self._write(topic, None)

    def _write(self, topic: str, mapping: TopicMapping | None) -> None:
        self.table.write(topic, mapping)
        self.apply_change(topic, mapping)
        for listener in self.on_change:
            listener(topic, mapping)


def check_static_topic(config: TopicConfig) -> None:
    """Refuse what cannot move between brokers: ILLEGAL_STATIC_TOPIC.

    Delayed and transactional messages come back from a system topic of the broker that took them, compaction and
    batches look at one physical queue, and lite topics and priorities have queues of their own.
    """
    what = None
    if config.message_type not in (MessageType.NORMAL, MessageType.FIFO):
        what = f"is of type {config.message_type.value}"
    elif config.is_compacted or config.holds_batches:
        what = "is compacted" if config.is_compacted else "holds batches"
    if what is not None:
        raise NameRefused("ILLEGAL_STATIC_TOPIC", f"The topic {config.name!r} {what}.")
