"""The routing table of a broker: which light queues receive a message. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.light_queue import light_queue
from millstream.model.routing.amqp_bindings import AmqpBinding, AmqpBindings, fits
from millstream.model.routing.mqtt_filters import MqttFilters
from millstream.model.routing.routes import (
    SESSION_KIND,
    LightQueueConfig,
    RouteBinding,
    further_keys,
    mqtt_name_of,
    place_in_amqp,
)

__all__ = ["MAX_BINDINGS", "MAX_LIGHT_QUEUES", "MAX_LIGHT_QUEUES_OF_MESSAGE", "RoutingTable"]

MAX_LIGHT_QUEUES: Final = 100_000
"""Light queues of a broker at most: each is about 2 KB of memory, and a file with its first message."""

MAX_BINDINGS: Final = 1_000_000
"""Bindings of all light queues of a broker at most."""

MAX_LIGHT_QUEUES_OF_MESSAGE: Final = 1_000
"""Light queues that one message may go to; one that more of them want is refused. Readers of so many copies share a
queue, or follow the topic."""


@dataclass(slots=True, eq=False)
class _Bound:
    """One binding in force: what the matchers give back."""

    queue: str
    binding: RouteBinding


@dataclass(slots=True)
class _TopicBindings:
    """The bindings to one topic."""

    mqtt: MqttFilters[_Bound] = field(default_factory=MqttFilters)
    amqp: AmqpBindings[_Bound] = field(default_factory=AmqpBindings)

    @property
    def is_blank(self) -> bool:
        """Whether there is no binding."""
        return not len(self.mqtt) and not len(self.amqp)


class RoutingTable:
    """Light queues by name, and their bindings. A binding counts while its queue is declared, in whatever order the two
    become known; with a queue its bindings go."""

    def __init__(self, watched: Collection[str] = ()) -> None:
        self.topics: dict[str, _TopicBindings] = {topic: _TopicBindings() for topic in watched}
        """The topics that have bindings, and those that are watched; for others to look up alone, as every message
        does. A watched topic has no bindings."""
        self.bounded: dict[str, LightQueueConfig] = {}
        """By stored name: the light queues whose length the broker keeps; for others to look up alone."""
        self._queues: dict[str, LightQueueConfig] = {}
        self._by_group: dict[str, dict[str, None]] = {}
        self._bindings: dict[str, dict[str, _Bound]] = {}
        self._binding_count = 0

    @property
    def binding_count(self) -> int:
        """The bindings of all light queues."""
        return self._binding_count

    def __len__(self) -> int:
        """The light queues."""
        return len(self._queues)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queues)

    def find(self, name: str) -> LightQueueConfig | None:
        """The light queue of that name; None if none is declared."""
        return self._queues.get(name)

    def groups(self) -> Iterator[str]:
        """The groups of all light queues but those of sessions, which have one group together."""
        return iter(self._by_group)

    def queues_of(self, group: str) -> list[str]:
        """The light queues that the group reads; none of sessions."""
        return list(self._by_group.get(group, ()))

    def binding_ids(self, name: str) -> list[str]:
        """The ids of the queue's bindings, declared or not."""
        return list(self._bindings.get(name, ()))

    def list_undeclared(self) -> list[str]:
        """The names that have bindings, and no light queue."""
        return [name for name in self._bindings if name not in self._queues]

    def check_room(self, queues: int, bindings: int) -> None:
        """Refuse so many more light queues and bindings than the broker may have: LIGHT_QUEUE_QUOTA_EXCEEDED."""
        for noun, held, more, limit in (
            ("light queues", len(self._queues), queues, MAX_LIGHT_QUEUES),
            ("bindings", self._binding_count, bindings, MAX_BINDINGS),
        ):
            if more and held + more > limit:
                raise NameRefused(
                    "LIGHT_QUEUE_QUOTA_EXCEEDED",
                    f"The broker has {held} {noun}; with {more} more its limit is {limit}.",
                )

    def declare(self, name: str, config: LightQueueConfig) -> None:
        """Have the light queue, or have it with other settings."""
        self._leave_group(name)
        self._queues[name] = config
        self.bounded.pop(light_queue(name), None)
        if config.overflow is not None:
            self.bounded[light_queue(name)] = config
        if config.kind != SESSION_KIND:
            self._by_group.setdefault(config.group, {})[name] = None

    def bind(self, name: str, binding_id: str, binding: RouteBinding) -> None:
        """Let the queue have a binding, in place of the one with that id."""
        self.unbind(name, binding_id)
        bound = _Bound(name, binding)
        self._bindings.setdefault(name, {})[binding_id] = bound
        self._binding_count += 1
        topic = self.topics.get(binding.topic)
        if topic is None:
            topic = self.topics[binding.topic] = _TopicBindings()
        if binding.mqtt is not None:
            topic.mqtt.add(binding.mqtt, bound)
        if binding.amqp is not None:
            topic.amqp.add(binding.amqp, bound)

    def unbind(self, name: str, binding_id: str) -> None:
        """Take a binding from the queue; nothing if it has none of that id."""
        own = self._bindings.get(name, {})
        bound = own.pop(binding_id, None)
        if bound is None:
            return
        if not own:
            del self._bindings[name]
        self._binding_count -= 1
        binding = bound.binding
        topic = self.topics[binding.topic]
        if binding.mqtt is not None:
            topic.mqtt.remove(binding.mqtt, bound)
        if binding.amqp is not None:
            topic.amqp.remove(binding.amqp, bound)
        if topic.is_blank:
            del self.topics[binding.topic]

    def remove(self, name: str) -> bool:
        """Have the light queue no more, nor its bindings; False if there was none."""
        for binding_id in self.binding_ids(name):
            self.unbind(name, binding_id)
        self._leave_group(name)
        self.bounded.pop(light_queue(name), None)
        return self._queues.pop(name, None) is not None

    def _leave_group(self, name: str) -> None:
        config = self._queues.get(name)
        if config is None or config.kind == SESSION_KIND:
            return
        names = self._by_group[config.group]
        del names[name]
        if not names:
            del self._by_group[config.group]

    def find_expired(self, now_ms: int) -> Iterator[str]:
        """The light queues whose time is over."""
        for name, config in self._queues.items():
            if config.expires_ms is not None and config.expires_ms <= now_ms:
                yield name

    def match(self, topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
        """The stored names of the light queues that want a message of the topic, each once.

        Raises TOO_MANY_LIGHT_QUEUES.
        """
        bindings = self.topics.get(topic)
        if bindings is None:
            return ()
        found: dict[str, None] = {}
        if len(bindings.mqtt):
            for bound in bindings.mqtt.match(mqtt_name_of(topic, properties)):
                found[bound.queue] = None
        if len(bindings.amqp):
            exchange, key = place_in_amqp(topic, properties)
            further = further_keys(properties)
            for bound in bindings.amqp.match(exchange, key, properties, further):
                amqp = bound.binding.amqp
                if amqp is None or not amqp.also or _fits_all(amqp.also, (key, *further), properties):
                    found[bound.queue] = None
        queues = self._queues
        names = tuple([light_queue(name) for name in found if name in queues])
        if len(names) > MAX_LIGHT_QUEUES_OF_MESSAGE:
            raise MessageRefused(
                "TOO_MANY_LIGHT_QUEUES",
                f"{len(names)} light queues want a message of the topic {topic!r}; the limit is "
                f"{MAX_LIGHT_QUEUES_OF_MESSAGE}.",
            )
        return names


def _fits_all(bindings: Sequence[AmqpBinding], keys: Sequence[str], properties: Mapping[str, str]) -> bool:
    """Whether a message fits each of the bindings by one of its keys."""
    return all(any(fits(binding, key, properties) for key in keys) for binding in bindings)
