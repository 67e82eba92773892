"""The topics of a broker, and the mappings of those that are static.

Both are kept in memory; each change is written to the state log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import NameRefused, StartRefused
from millstream.model.light_queue import LIGHT_PREFIX, is_light_queue
from millstream.model.logic_queue import LogicQueue, TopicMapping
from millstream.model.topic import (
    MAX_QUEUES,
    RETRY_PREFIX,
    MessageType,
    Permission,
    TopicConfig,
    check_attributes,
    check_topic_name,
    is_system_topic,
)
from millstream.protocol.trace import TRACE_TOPIC
from millstream.store.snapshot import Snapshot

__all__ = [
    "DEAD_LETTER_PREFIX",
    "MAX_TOPICS",
    "REPLY_TOPIC_SUFFIX",
    "RETRY_PREFIX",
    "StaticTopics",
    "TopicRegistry",
    "check_static_topic",
    "own_topics",
]


_VERSION = 1


class _MappingsDocument(Document):
    topics: list[TopicMapping]


class StaticTopics:
    """The mappings by topic. Changes are on disk before the call returns.

    `on_change` is called with the topic and its new mapping, None where the topic was deleted.
    """

    def __init__(self, snapshot: Snapshot, broker_name: str) -> None:
        saved = SavedDocument(snapshot, _MappingsDocument, noun="mappings of static topics", version=_VERSION)
        self.table = StateTable("static-topic", saved, TopicMapping, self)
        """Its saved form."""
        self._mappings: dict[str, TopicMapping] = {}
        self._broker_name = broker_name
        self.on_change: list[Callable[[str, TopicMapping | None], None]] = []

    def make_document(self) -> _MappingsDocument:
        """All mappings."""
        return _MappingsDocument(version=_VERSION, topics=self.all())

    def load_document(self, document: _MappingsDocument) -> None:
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


MAX_TOPICS = 10_000
"""Topics of one broker at most: all of them are in one document."""

DEAD_LETTER_PREFIX = "%DLQ%"
"""Before a group's name: the topic of the messages that the group could not consume."""


class _TopicsDocument(Document):
    topics: list[TopicConfig]


class TopicRegistry:
    """The topics by name. Changes are on disk before the call returns.

    `before_change` is called with the topic as it is, None for a new one, and as it is to be; it may refuse.
    `before_delete` is called with the name while the topic is still there, so that what belongs to it goes first.
    `on_change` is called with the name and the new configuration, None for a deleted topic. `static` holds the mappings
    of static topics, `on_mapping_change` is called with the name and the new mapping, None for a deleted topic.
    """

    def __init__(self, snapshot: Snapshot, static: StaticTopics | None = None) -> None:
        saved = SavedDocument(snapshot, _TopicsDocument, noun="topics", version=_VERSION)
        self.table = StateTable("topic", saved, TopicConfig, self)
        """Its saved form."""
        self._topics: dict[str, TopicConfig] = {}
        self._offered: set[str] = set()
        self.before_change: list[Callable[[TopicConfig | None, TopicConfig], None]] = []
        self.before_delete: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[str, TopicConfig | None], None]] = []
        self.find_light_queue: Callable[[str], TopicConfig | None] = lambda _name: None
        """Knows light queues by their stored names; they are found like topics, and neither listed nor counted."""
        self.light_queues_of: Callable[[str], list[str]] = lambda _group: []
        """The stored names of those that a group reads, but for the queues of sessions."""
        self._static = static
        self.on_mapping_change: list[Callable[[str, TopicMapping | None], None]] = (
            [] if static is None else static.on_change
        )

    def make_document(self) -> _TopicsDocument:
        """All topics but those that are offered."""
        return _TopicsDocument(
            version=_VERSION, topics=[topic for name, topic in self._topics.items() if name not in self._offered]
        )

    def load_document(self, document: _TopicsDocument) -> None:
        """Take up the saved topics."""
        self._topics = {topic.name: topic for topic in document.topics}

    def apply_change(self, key: str, value: TopicConfig | None) -> None:
        """Have the topic, or have it no more."""
        if value is None:
            self._topics.pop(key, None)
        else:
            self._topics[key] = value

    def find(self, name: str) -> TopicConfig | None:
        """The topic, or None."""
        topic = self._topics.get(name)
        return self.find_light_queue(name) if topic is None and name.startswith(LIGHT_PREFIX) else topic

    def get(self, name: str) -> TopicConfig:
        """The topic. Raises TOPIC_NOT_FOUND."""
        topic = self._topics.get(name) or self.find(name)
        if topic is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")
        return topic

    def all(self) -> list[TopicConfig]:
        """All topics, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def mapping(self, name: str) -> TopicMapping | None:
        """The logic queues of a static topic; None for any other topic, whose queues are bound to the broker."""
        return None if self._static is None else self._static.find(name)

    def mappings(self) -> list[TopicMapping]:
        """The mappings of all static topics, by name."""
        return [] if self._static is None else self._static.all()

    def create(self, topic: TopicConfig) -> bool:
        """Add a topic; True if it is new, False if it was there with equal settings.

        Raises ILLEGAL_TOPIC (name, or queues not 1 to 1,024), TOPIC_EXISTS (with other settings).
        """
        self._check_not_own(topic.name)
        return self._create(topic)

    def ensure_own(self, topic: TopicConfig) -> None:
        """Add one of the system's own topics, which clients may read and not write, unless it is there."""
        if topic.name not in self._topics:
            self._create(topic)

    def offer(self, topics: Iterable[TopicConfig]) -> None:
        """Have these of the system's own topics from now on, where no topic has their name. They are never saved, and
        neither changed nor deleted."""
        for topic in topics:
            if topic.name not in self._topics or is_system_topic(topic.name):
                check_topic_name(topic.name)
                self._offered.add(topic.name)
                self._topics[topic.name] = topic

    def own(self) -> list[str]:
        """The names of the system's own topics that are there, sorted."""
        return sorted(name for name in self._topics if name in self._offered or is_system_topic(name))

    def update(self, topic: TopicConfig) -> bool:
        """Give a topic other settings, or add it; whether anything was changed.

        Raises ILLEGAL_TOPIC, and TOPIC_SETTING_FIXED for what its messages depend on.
        """
        self._check_not_own(topic.name)
        present = self._topics.get(topic.name)
        if present is None or present == topic:
            return self._create(topic)
        _check_settings(topic)
        _check_fixed(present, topic)
        self._put(topic)
        return True

    def _check_not_own(self, name: str) -> None:
        if name in self._offered or is_system_topic(name) or is_light_queue(name):
            raise NameRefused("ILLEGAL_TOPIC", f"The topic name {name!r} is the system's own.")

    def _create(self, topic: TopicConfig) -> bool:
        _check_settings(topic)
        present = self._topics.get(topic.name)
        if present is not None:
            if present == topic:
                return False
            raise NameRefused(
                "TOPIC_EXISTS", f"The topic {topic.name!r} exists with other settings: {_words(present)}."
            )
        if len(self._topics) >= MAX_TOPICS:
            raise NameRefused(
                "TOO_MANY_REQUESTS",
                f"The broker has {MAX_TOPICS} topics, which is its limit.",
                remedy="Delete a topic.",
            )
        self._put(topic)
        return True

    def put_static(self, topic: TopicConfig) -> None:
        """Add or change a static topic; this broker may have no queue of it. Raises ILLEGAL_TOPIC, TOO_MANY_REQUESTS.

        Queues that are there stay: their messages are part of logic queues.
        """
        check_topic_name(topic.name)
        check_attributes(topic)
        present = self._topics.get(topic.name)
        if is_system_topic(topic.name) or max(topic.read_queues, topic.write_queues) > MAX_QUEUES:
            raise NameRefused("ILLEGAL_TOPIC", f"{topic.name!r} cannot be static with {topic.queues} queues.")
        if present is None and len(self._topics) >= MAX_TOPICS:
            raise NameRefused("TOO_MANY_REQUESTS", f"The broker has {MAX_TOPICS} topics, which is its limit.")
        if present is not None:
            read, write = max(topic.read_queues, present.read_queues), max(topic.write_queues, present.write_queues)
            topic = replace(topic, read_queues=read, write_queues=write)
        if topic != present:
            self._put(topic)

    def delete(self, name: str) -> None:
        """Remove a topic and all that belongs to it. Raises TOPIC_NOT_FOUND, ILLEGAL_TOPIC."""
        self.get(name)
        if name in self._offered or is_light_queue(name):
            raise NameRefused("ILLEGAL_TOPIC", f"The topic {name!r} is the system's own and stays.")
        for forget in self.before_delete:
            forget(name)
        self.table.write(name, None)
        self.apply_change(name, None)
        self._announce(name, None)

    def _put(self, topic: TopicConfig) -> None:
        for check in self.before_change:
            check(self._topics.get(topic.name), topic)
        self.table.write(topic.name, topic)
        self.apply_change(topic.name, topic)
        self._announce(topic.name, topic)

    def _announce(self, name: str, topic: TopicConfig | None) -> None:
        for listener in self.on_change:
            listener(name, topic)


def _check_settings(topic: TopicConfig) -> None:
    check_topic_name(topic.name)
    if not (1 <= topic.read_queues <= MAX_QUEUES and 1 <= topic.write_queues <= MAX_QUEUES):
        raise NameRefused(
            "ILLEGAL_TOPIC",
            f"The topic {topic.name!r} asks for {topic.read_queues} readable, {topic.write_queues} writable ones.",
            remedy=f"Ask for 1 to {MAX_QUEUES} of each.",
        )
    check_attributes(topic)


def _check_fixed(present: TopicConfig, wanted: TopicConfig) -> None:
    """Refuse to change how the messages that are there are stored and found."""
    for what, before, after in (
        ("queue.type", present.holds_batches, wanted.holds_batches),
        ("cleanup.policy", present.is_compacted, wanted.is_compacted),
        ("type LITE", present.message_type is MessageType.LITE, wanted.message_type is MessageType.LITE),
    ):
        if before is not after:
            raise NameRefused("TOPIC_SETTING_FIXED", f"The topic {present.name!r} cannot change its {what}.")


def _words(topic: TopicConfig) -> str:
    return (
        f"type {topic.message_type.value}, {topic.read_queues} readable and {topic.write_queues} writable queues, "
        f"permission {int(topic.permission)}, "
        f"attributes {', '.join(f'{name}={value}' for name, value in sorted(topic.attributes.items())) or 'none'}"
    )


REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
"""Behind a cluster's name: the topic to whose brokers answers of request-reply go."""

_ALL = Permission.READ | Permission.WRITE | Permission.INHERIT
_CLUSTER_QUEUES = 16


def own_topics(broker_name: str, cluster: str) -> tuple[TopicConfig, ...]:
    """By the cluster's and the broker's name tools find brokers and measure them; answers and traces go to the others.

    RocketMQ 5.3 has more, which are empty and which no tool asks for.
    """
    return (
        TopicConfig(cluster, read_queues=_CLUSTER_QUEUES, write_queues=_CLUSTER_QUEUES, permission=_ALL),
        TopicConfig(broker_name, read_queues=1, write_queues=1, permission=_ALL),
        TopicConfig(cluster + REPLY_TOPIC_SUFFIX, read_queues=1, write_queues=1, permission=_ALL),
        TopicConfig(TRACE_TOPIC, read_queues=1, write_queues=1),
    )
