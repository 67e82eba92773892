"""The resources of a request, and the patterns by which policies name them.

Texts as in RocketMQ's access control 2.0: `Topic:orders`, `Topic:ord*`, `Topic:*`, the same for `Group` and
`Cluster`, and `*` for everything. `Mqtt:factory/+/line/#` is ours: see `mqtt_pattern`; `Mqtt:*` is all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.model.errors import AccessRefused
from millstream.security.mqtt_pattern import MqttClient, MqttPattern

__all__ = ["MAX_PATTERN_CHARACTERS", "NameMatch", "Resource", "ResourceKind", "ResourcePattern"]

MAX_PATTERN_CHARACTERS: Final = 160
"""Characters of a pattern's text at most: a kind and the longest name."""

_GROUPS_OWN_TOPICS = ("%RETRY%", "%DLQ%")
"""Before a group's name: the topics of its messages that are delivered again, or never again."""


class ResourceKind(Enum):
    """The kinds of resources; ANY stands in patterns only."""

    ANY = "Any"
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"
    MQTT = "Mqtt"
    """Topics as MQTT clients name them."""


class NameMatch(Enum):
    """How a pattern's name is compared; the value orders them, the most specific first."""

    LITERAL = 0
    PREFIX = 1
    FILTER = 2
    """A filter of MQTT topics."""
    ANY = 3


@dataclass(frozen=True, slots=True)
class Resource:
    """What a request touches. `name` None means all of the kind, as for a list; only `*` patterns match that."""

    kind: ResourceKind
    name: str | None
    client: MqttClient | None = None
    """Who asks, where patterns may name the one who does; `name` is an MQTT topic or filter then."""

    @classmethod
    def mqtt(cls, topic_filter: str, client: MqttClient) -> Resource:
        """The topics of an MQTT client's filter; a topic is a filter of itself."""
        return cls(ResourceKind.MQTT, topic_filter, client)

    @classmethod
    def topic(cls, name: str) -> Resource:
        """A topic. The retry and dead-letter topics of a group count as the group."""
        for prefix in _GROUPS_OWN_TOPICS:
            if name.startswith(prefix):
                return cls(ResourceKind.GROUP, name.removeprefix(prefix))
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> Resource:
        """A consumer group."""
        return cls(ResourceKind.GROUP, name)

    @classmethod
    def cluster(cls, name: str) -> Resource:
        """A cluster."""
        return cls(ResourceKind.CLUSTER, name)

    def __str__(self) -> str:
        return f"{self.kind.value}:{'*' if self.name is None else self.name}"


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources of a policy's entry. `name` is blank where `match` is ANY."""

    kind: ResourceKind
    match: NameMatch
    name: str = ""
    mqtt: MqttPattern | None = None
    """What `name` says, where it is a filter."""

    @classmethod
    def parse(cls, text: str) -> ResourcePattern:
        """The pattern of a text; ILLEGAL_POLICY."""
        if text == "*":
            return cls(ResourceKind.ANY, NameMatch.ANY)
        kind_text, colon, name = text.partition(":")
        kind = next((kind for kind in ResourceKind if kind.value.lower() == kind_text.strip().lower()), None)
        if kind is ResourceKind.MQTT and name != "*":
            return cls(kind, NameMatch.FILTER, name, MqttPattern.parse(name))
        stem = name.removesuffix("*")
        if kind in (None, ResourceKind.ANY) or not colon or not name or "*" in stem or not stem.isprintable():
            raise AccessRefused("ILLEGAL_POLICY", f"{text[:200]!r} names no resources.")
        if len(text) > MAX_PATTERN_CHARACTERS:
            raise AccessRefused("ILLEGAL_POLICY", f"A resource of {len(text)} characters is too long.")
        assert kind is not None
        if name == "*":
            return cls(kind, NameMatch.ANY)
        return cls(kind, NameMatch.PREFIX if name.endswith("*") else NameMatch.LITERAL, stem)

    def matches(self, resource: Resource) -> bool:
        """Whether the resource is one of the pattern's; of a filter of MQTT topics, whether all of them are."""
        if self.kind not in (ResourceKind.ANY, resource.kind):
            return False
        if self.match is NameMatch.ANY:
            return True
        if resource.name is None:
            return False
        if self.mqtt is not None:
            return resource.client is not None and self.mqtt.covers(resource.name, resource.client)
        return resource.name.startswith(self.name) if self.match is NameMatch.PREFIX else resource.name == self.name

    def overlaps(self, resource: Resource) -> bool:
        """Whether some of the resource is the pattern's: as `matches`, but for filters of MQTT topics."""
        if self.mqtt is None or resource.client is None or resource.name is None:
            return self.matches(resource)
        return self.mqtt.overlaps(resource.name, resource.client)

    @property
    def rank(self) -> tuple[bool, int, tuple[int, ...]]:
        """Sorts the more specific pattern first: a kind, then a whole name, then the longer beginning of one."""
        within = (-len(self.name),) if self.mqtt is None else self.mqtt.rank
        return self.kind is ResourceKind.ANY, self.match.value, within

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind.value}:{self.name}{'*' if self.match in (NameMatch.PREFIX, NameMatch.ANY) else ''}"
