"""What a request touches, and the patterns by which policies name it.

Texts as in RocketMQ's access control 2.0: `Topic:orders`, `Topic:ord*`, `Topic:*`, the same for `Group` and
`Cluster`, and `*` for everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.model.errors import AccessRefused

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


class NameMatch(Enum):
    """How a pattern's name is compared; the value orders them, the most specific first."""

    LITERAL = 0
    PREFIX = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """What a request touches. `name` None means all of the kind, as for a list; only `*` patterns match that."""

    kind: ResourceKind
    name: str | None

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

    @classmethod
    def parse(cls, text: str) -> ResourcePattern:
        """The pattern of a text; ILLEGAL_POLICY."""
        if text == "*":
            return cls(ResourceKind.ANY, NameMatch.ANY)
        kind_text, colon, name = text.partition(":")
        kind = next((kind for kind in ResourceKind if kind.value.lower() == kind_text.strip().lower()), None)
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
        """Whether the resource is one of the pattern's."""
        if self.kind not in (ResourceKind.ANY, resource.kind):
            return False
        if self.match is NameMatch.ANY:
            return True
        if resource.name is None:
            return False
        return resource.name.startswith(self.name) if self.match is NameMatch.PREFIX else resource.name == self.name

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sorts the more specific pattern first: a kind, then a whole name, then the longer beginning of one."""
        return self.kind is ResourceKind.ANY, self.match.value, -len(self.name)

    def __str__(self) -> str:
        if self.kind is ResourceKind.ANY:
            return "*"
        return f"{self.kind.value}:{self.name}{'' if self.match is NameMatch.LITERAL else '*'}"
