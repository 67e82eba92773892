"""Policies: entries that allow or deny actions on resources, and the request they are evaluated for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeVar

from millstream.model.errors import AccessRefused
from millstream.model.state_topics import is_state_topic
from millstream.security.mqtt_pattern import MqttClient
from millstream.security.resource import Resource, ResourceKind, ResourcePattern

__all__ = [
    "MAX_SOURCES",
    "Action",
    "Decision",
    "PolicyEntry",
    "PolicyKind",
    "RequiredAccess",
    "check_source",
    "parse_actions",
]

MAX_SOURCES: Final = 100
"""Addresses of one entry at most."""


_KNOWN_NAMES = 4096
"""Names whose wishes are remembered: busy ones are asked about at every message."""


class Action(Enum):
    """What can be done to a resource. ALL stands in entries only; RocketMQ also writes it `Any`."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(Enum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyKind(Enum):
    """Default entries are asked only where no custom entry matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


@dataclass(frozen=True, slots=True)
class RequiredAccess:
    """What a request needs: one of `actions` on the resource. Several are given where each of them is enough."""

    resource: Resource
    actions: tuple[Action, ...]
    within: Resource | None = None
    """Asked about in its place where no entry speaks of `resource`: the topic that holds the messages of an MQTT
    topic."""

    @classmethod
    @lru_cache(maxsize=_KNOWN_NAMES)
    def publish(cls, topic: str) -> RequiredAccess:
        """To send to a topic. Into a group's own topics its consumers send, when they give a message back."""
        resource = Resource.topic(topic)
        return cls(resource, (Action.SUB if resource.kind is ResourceKind.GROUP else Action.PUB,))

    @classmethod
    @lru_cache(maxsize=_KNOWN_NAMES)
    def read(cls, topic: str) -> RequiredAccess:
        """To consume a topic's messages."""
        return cls(Resource.topic(topic), (Action.SUB,))

    @classmethod
    @lru_cache(maxsize=_KNOWN_NAMES)
    def consume(cls, group: str) -> RequiredAccess:
        """To consume as a member of a group."""
        return cls(Resource.group(group), (Action.SUB,))

    @classmethod
    def publish_mqtt(cls, name: str, topic: str, client: MqttClient) -> RequiredAccess:
        """To publish under an MQTT topic name; `topic` keeps the messages."""
        return cls(Resource.mqtt(name, client), (Action.PUB,), Resource.topic(topic))

    @classmethod
    def subscribe_mqtt(cls, topic_filter: str, topic: str | None, client: MqttClient) -> RequiredAccess:
        """To subscribe to a filter whose messages are in `topic`; None where they may be in any."""
        within = Resource(ResourceKind.TOPIC, None) if topic is None else Resource.topic(topic)
        return cls(Resource.mqtt(topic_filter, client), (Action.SUB,), within)

    @property
    def is_reserved(self) -> bool:
        """Whether only super users may, whatever entries say: topics in which proxies keep their state."""
        return any(
            one is not None and one.kind is ResourceKind.TOPIC and is_state_topic(one.name)
            for one in (self.resource, self.within)
        )

    def __str__(self) -> str:
        return f"{' or '.join(action.value for action in self.actions)} on {self.resource}"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One line of a policy. `sources` are addresses and networks (CIDR) that it holds for; none means all."""

    pattern: ResourcePattern
    actions: frozenset[Action]
    decision: Decision = Decision.ALLOW
    sources: tuple[str, ...] = ()
    kind: PolicyKind = PolicyKind.CUSTOM

    def matches(self, action: Action, resource: Resource, source: str) -> bool:
        """Whether the entry speaks of this. `source` is the peer's address.

        Of a filter of MQTT topics an entry that denies speaks where it denies one of them, an entry that allows only
        where it allows all.

        A source that is no address is unknown: it matches what denies, and nothing that allows to some addresses only.
        """
        pattern, denies = self.pattern, self.decision is Decision.DENY
        if not (pattern.overlaps(resource) if denies else pattern.matches(resource)):
            return False
        if action not in self.actions and Action.ALL not in self.actions:
            return False
        if not self.sources:
            return True
        address = _address(source)
        if address is None:
            return denies
        return any(address in _network(text) for text in self.sources)

    @classmethod
    def read(
        cls, resource: str, actions: Iterable[str], sources: Iterable[str], decision: str, kind: str = "Custom"
    ) -> PolicyEntry:
        """The entry of RocketMQ's texts, case aside; ILLEGAL_POLICY where one of them means nothing."""
        addresses = tuple(sorted(check_source(text) for text in sources))
        if len(addresses) > MAX_SOURCES:
            raise AccessRefused(
                "ILLEGAL_POLICY", f"An entry names {len(addresses)} addresses; the limit is {MAX_SOURCES}."
            )
        return cls(
            ResourcePattern.parse(resource),
            parse_actions(actions),
            _member_of(Decision, decision),
            addresses,
            _member_of(PolicyKind, kind),
        )

    @property
    def rank(self) -> tuple[bool, tuple[bool, int, tuple[int, ...]], bool, str]:
        """Sorts entries by who is asked first: custom, then the more specific pattern, then what denies."""
        is_default, allows = self.kind is PolicyKind.DEFAULT, self.decision is Decision.ALLOW
        return is_default, self.pattern.rank, allows, self.pattern.name

    def __str__(self) -> str:
        actions = ",".join(action.value for action in Action if action in self.actions)
        origin = f" from {','.join(self.sources)}" if self.sources else ""
        return f"{self.kind.value} {self.decision.value} {actions} on {self.pattern}{origin}"


def check_source(text: str) -> str:
    """The address or network in its usual spelling; ILLEGAL_POLICY where it is neither."""
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError:
        raise AccessRefused("ILLEGAL_POLICY", f"{text[:80]!r} is no IP address and no network.") from None
    return str(network.network_address) if network.num_addresses == 1 else str(network)


_E = TypeVar("_E", bound=Enum)


def parse_actions(texts: Iterable[str]) -> frozenset[Action]:
    """The actions of their names, case aside; ILLEGAL_POLICY for an unknown one or none at all."""
    found = frozenset(_member_of(Action, "All" if text.strip().lower() == "any" else text) for text in texts)
    if not found:
        raise AccessRefused("ILLEGAL_POLICY", "An entry names no action.")
    return found


def _member_of(kind: type[_E], text: str) -> _E:
    for member in kind:
        if member.value.lower() == text.strip().lower():
            return member
    known = ", ".join(member.value for member in kind)
    raise AccessRefused("ILLEGAL_POLICY", f"{text[:80]!r} is none of {known}.")


@lru_cache(maxsize=4096)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    # A socket that listens on both families reports an IPv4 peer as ::ffff:192.0.2.7.
    return getattr(address, "ipv4_mapped", None) or address
