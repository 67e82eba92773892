"""The route registry: registrations of brokers, and the routes that follow from them. Pure: no clock, no sockets.

A registration is a lease: a broker that is not heard of for its time is forgotten by `expire`. Source of the rules:
RocketMQ 5.3's RouteInfoManager (facts only).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import UNSET

from millstream.cluster.topic_holders import TopicHolders
from millstream.model.errors import NameRefused
from millstream.model.logic_queue import TopicMapping
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.remoting.administration.static_topics import mapping_info
from millstream.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicMappingInfo,
    TopicRouteData,
)

__all__ = ["FAILOVER_S", "LEASE_S", "MASTER_ID", "MAX_BROKERS", "MAX_REPLICAS", "BrokerRegistration", "RouteRegistry"]

LEASE_S: Final = 120.0
"""Seconds that a registration counts; brokers repeat theirs every 30 s."""

MASTER_ID: Final = 0
"""The broker id of a master; others are its replicas."""

FAILOVER_S: Final = 10.0
"""Seconds for which the route to a master is kept whose connection closed, or which is a replica now, unless another
one takes its place."""

MAX_BROKERS: Final = 1024
"""Brokers that one nameserver knows at most; it is a memory bound, not a goal."""

MAX_REPLICAS: Final = 64
"""Registrations, each of its own id, that one broker name has at most."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What one broker says of itself. `address` is what clients connect to, as `host:port`."""

    cluster: str
    broker_name: str
    address: str
    topics: tuple[TopicConfig, ...] = ()
    broker_id: int = MASTER_ID
    data_version: DataVersion | None = None
    mappings: Mapping[str, TopicMappingInfo] = field(default_factory=dict)
    """By the name of the static topic, what the broker says of its logic queues."""
    ha_address: str = ""
    """Where replicas copy its log from, as `host:port`."""
    tells_topics: bool = True
    """Whether the topics and mappings were read at all: those of a replica with a master count for nothing."""

    @property
    def epoch(self) -> int:
        """Of which epoch it is the master, as the controllers count; 0 where there are none."""
        return 0 if self.data_version is None else self.data_version.state_version


@dataclass(frozen=True, slots=True)
class _HeldEpoch:
    """Who registered an id last, with which epoch. It counts as long as its lease, also where it is gone."""

    epoch: int
    address: str
    until_s: float


@dataclass(slots=True)
class _Broker:
    """All registrations under one broker name: a master and its replicas. The master's topics count."""

    cluster: str
    addresses: dict[int, str] = field(default_factory=dict)
    expires_s: dict[int, float] = field(default_factory=dict)
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    data_versions: dict[int, DataVersion] = field(default_factory=dict)
    ha_addresses: dict[int, str] = field(default_factory=dict)
    is_writable: bool = True
    """Whether tools have not taken the permission to write from its queues in the routes told here."""
    mappings: dict[str, TopicMappingInfo] = field(default_factory=dict)
    is_whole: bool = False
    """Whether the topics are all that the broker told, and nobody else has changed any since."""

    @property
    def is_own(self) -> bool:
        """Whether it runs in this process, which alone says what it has."""
        return math.inf in self.expires_s.values()


class RouteRegistry:
    """Answers where topics lie. Times are seconds of a clock that never goes back, the caller's own."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Broker] = {}
        self._topics = TopicHolders()
        self._next_expiry_s = math.inf
        self._epochs: dict[tuple[str, int], _HeldEpoch] = {}
        self._epoch_limit = MAX_BROKERS
        self.on_expired: list[Callable[[str, int], None]] = []
        """Called with the name and id of each broker whose lease has ended."""

    def register(
        self, registration: BrokerRegistration, now_s: float = 0.0, *, lease_s: float = LEASE_S, whole: bool = True
    ) -> bool:
        """Take a registration in place of the broker's former one; False if there are too many brokers.

        Raises FENCED_MASTER_EPOCH for one of an epoch before that of the id's holder, so that an old master cannot take
        the route back.

        A `lease_s` of `math.inf` is for a broker in the same process, which is unregistered when it stops. One that
        is not `whole` tells topics that are new or changed, beside those that were told before. Who may register is
        for the caller to judge.
        """
        self.compare_epochs(registration, now_s)
        broker = self._brokers.get(registration.broker_name)
        if broker is None:
            if len(self._brokers) >= MAX_BROKERS:
                return False
            broker = self._brokers[registration.broker_name] = _Broker(registration.cluster)
        if registration.broker_id not in broker.addresses and len(broker.addresses) >= MAX_REPLICAS:
            return False
        for other in [number for number, address in broker.addresses.items() if address == registration.address]:
            if other == MASTER_ID != registration.broker_id and registration.epoch:
                # Until the next master registers clients ask it and are sent on, where no master would be an error.
                self.shorten_lease(registration.broker_name, MASTER_ID, now_s + FAILOVER_S)
                continue
            # A replica that became the master is no replica any more.
            del broker.addresses[other]
            broker.expires_s.pop(other, None)
        broker.addresses[registration.broker_id] = registration.address
        broker.ha_addresses[registration.broker_id] = registration.ha_address
        expires_s = now_s + lease_s
        broker.expires_s[registration.broker_id] = expires_s
        self._next_expiry_s = min(self._next_expiry_s, expires_s)
        self._note_epoch(registration, expires_s, now_s)
        is_first = registration.broker_id == min(broker.addresses)
        if is_first:
            broker.cluster = registration.cluster
            self._take_topics(broker, registration, whole=whole)
        if registration.data_version is not None and (registration.tells_topics or not is_first):
            broker.data_versions[registration.broker_id] = registration.data_version
        return True

    def needs_topics(self, broker_name: str, broker_id: int, address: str) -> bool:
        """Whether the topics count that a broker of that id tells: its id is the lowest of those under the name."""
        broker = self._brokers.get(broker_name)
        return broker is None or not any(
            number < broker_id and other != address for number, other in broker.addresses.items()
        )

    def _take_topics(self, broker: _Broker, registration: BrokerRegistration, *, whole: bool) -> None:
        if not registration.tells_topics:
            # The lower id went while this one registered: it is to tell its topics now.
            broker.is_whole = False
            return
        name, before = registration.broker_name, broker.topics
        topics = {topic.name: self._share(topic) for topic in registration.topics}
        broker.is_whole = whole or broker.is_whole
        self._topics.add(name, topics.keys() - before.keys())
        if whole:
            self._topics.remove(name, before.keys() - topics.keys())
            broker.topics, broker.mappings = topics, dict(registration.mappings)
        else:
            broker.topics.update(topics)
            broker.mappings.update(registration.mappings)

    def _share(self, topic: TopicConfig) -> TopicConfig:
        """The equal one of another broker, if there is one, so that memory holds once what a whole cluster has."""
        holders = self._topics.of(topic.name)
        twin = self._brokers[holders[0]].topics[topic.name] if holders else topic
        return twin if twin == topic else topic

    def _put_topic(self, broker_name: str, broker: _Broker, topic: TopicConfig) -> None:
        if topic.name not in broker.topics:
            self._topics.add(broker_name, (topic.name,))
        broker.topics[topic.name] = topic

    def _drop_topic(self, broker_name: str, broker: _Broker, topic: str) -> bool:
        if broker.topics.pop(topic, None) is None:
            return False
        self._topics.remove(broker_name, (topic,))
        return True

    def compare_epochs(self, registration: BrokerRegistration, now_s: float) -> bool:
        """Whether the registration is of a later epoch than that of the id's holder at another address.

        Raises FENCED_MASTER_EPOCH where it is of an earlier one.
        """
        if registration.broker_id != MASTER_ID:
            self._refuse_former_replica(registration, now_s)
        held = self._epochs.get((registration.broker_name, registration.broker_id))
        if held is None or held.until_s <= now_s or held.address == registration.address:
            return False
        if registration.epoch < held.epoch:
            raise NameRefused(
                "FENCED_MASTER_EPOCH",
                f"Broker {registration.broker_name[:200]!r} at {registration.address[:200]} registers with epoch "
                f"{registration.epoch}; {held.address} did with {held.epoch}.",
            )
        return registration.epoch > held.epoch

    def _refuse_former_replica(self, registration: BrokerRegistration, now_s: float) -> None:
        """A replica that was elected: what it said before of itself may arrive after its registration as the master."""
        held = self._epochs.get((registration.broker_name, MASTER_ID))
        if held is None or held.until_s <= now_s or held.address != registration.address:
            return
        if registration.epoch < held.epoch:
            raise NameRefused(
                "FENCED_MASTER_EPOCH",
                f"Broker {registration.broker_name[:200]!r} at {registration.address[:200]} registers as a replica "
                f"with epoch {registration.epoch}; it is the master of {held.epoch}.",
            )

    def _note_epoch(self, registration: BrokerRegistration, until_s: float, now_s: float) -> None:
        key = registration.broker_name, registration.broker_id
        if registration.epoch:
            self._epochs[key] = _HeldEpoch(registration.epoch, registration.address, until_s)
        else:
            self._epochs.pop(key, None)
        if len(self._epochs) > self._epoch_limit:
            self._epochs = {key: held for key, held in self._epochs.items() if held.until_s > now_s}
            # Else each registration would look at all of them where more than that many are alive.
            self._epoch_limit = max(MAX_BROKERS, 2 * len(self._epochs))

    def is_own(self, broker_name: str) -> bool:
        """Whether the broker of that name runs in this process."""
        broker = self._brokers.get(broker_name)
        return broker is not None and broker.is_own

    def is_whole(self, broker_name: str) -> bool:
        """Whether all topics of the broker are known as it told them."""
        broker = self._brokers.get(broker_name)
        return broker is not None and broker.is_whole

    def add_topic(self, broker_name: str, topic: TopicConfig) -> None:
        """A tool says that a broker has the topic; nothing for one of this process, which says so itself."""
        broker = self._brokers.get(broker_name)
        if broker is not None and not broker.is_own:
            self._put_topic(broker_name, broker, topic)
            broker.is_whole = False

    def update_topic(self, broker_name: str, name: str, topic: TopicConfig | None) -> None:
        """One topic of a registered broker has changed, or (None) is gone. Fits `TopicRegistry.on_change`."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        if topic is None:
            self._drop_topic(broker_name, broker, name)
        else:
            self._put_topic(broker_name, broker, topic)

    def update_mapping(self, broker_name: str, topic: str, mapping: TopicMapping | None) -> None:
        """The logic queues of a registered broker have changed, or (None) are gone; fits `StaticTopics.on_change`."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        if mapping is None:
            broker.mappings.pop(topic, None)
        else:
            broker.mappings[topic] = mapping_info(mapping)

    def unregister(self, broker_name: str, broker_id: int = MASTER_ID) -> None:
        """Forget one broker; no error if it is not known."""
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        broker.addresses.pop(broker_id, None)
        broker.expires_s.pop(broker_id, None)
        broker.data_versions.pop(broker_id, None)
        broker.ha_addresses.pop(broker_id, None)
        if not broker.addresses:
            self._topics.remove(broker_name, broker.topics)
            del self._brokers[broker_name]

    def expire(self, now_s: float) -> list[str]:
        """Forget the brokers whose lease has ended; their names. Costs nothing while none has."""
        if now_s < self._next_expiry_s:
            return []
        ended = [
            (name, broker_id)
            for name, broker in self._brokers.items()
            for broker_id, expires_s in broker.expires_s.items()
            if expires_s <= now_s
        ]
        for name, broker_id in ended:
            self.unregister(name, broker_id)
            for listener in self.on_expired:
                listener(name, broker_id)
        leases = (expires_s for broker in self._brokers.values() for expires_s in broker.expires_s.values())
        self._next_expiry_s = min(leases, default=math.inf)
        return [name for name, _ in ended]

    def delete_topic(self, name: str) -> None:
        """Forget a topic until a broker registers it again; what brokers of this process have stays."""
        for broker_name, broker in self._brokers.items():
            if broker.is_own:
                continue
            broker.mappings.pop(name, None)
            if self._drop_topic(broker_name, broker, name):
                broker.is_whole = False

    def route(self, topic: str) -> TopicRouteData | None:
        """The brokers that hold the topic, by name; None if there is none."""
        holders = [(name, self._brokers[name]) for name in self._topics.of(topic)]
        if not holders:
            return None
        queues = [_queue_data(name, broker.topics[topic], broker.is_writable) for name, broker in holders]
        mappings = {name: broker.mappings[topic] for name, broker in holders if topic in broker.mappings}
        brokers = [_broker_data(name, broker) for name, broker in holders]
        return TopicRouteData(brokers, queues, topic_queue_mapping_by_broker=mappings or UNSET)

    def retry_route(self, topic: str) -> TopicRouteData | None:
        """Where the retry topic of a group will lie that nobody made yet: one queue at each broker.

        Tools ask for it to find a group's brokers, consumers before the heartbeat that makes it. None without brokers.
        """
        config = TopicConfig(topic, read_queues=1, write_queues=1)
        brokers = sorted(self._brokers.items())
        queues = [_queue_data(name, config, broker.is_writable) for name, broker in brokers]
        return TopicRouteData([_broker_data(name, broker) for name, broker in brokers], queues) if brokers else None

    def topics(self, cluster: str | None = None) -> list[str]:
        """The names of all topics, or of those of one cluster, sorted."""
        if cluster is None:
            return self._topics.topics()
        brokers = (broker for broker in self._brokers.values() if cluster == broker.cluster)
        return sorted({name for broker in brokers for name in broker.topics})

    def set_writable(self, broker_name: str, is_writable: bool) -> int | None:
        """Have routes name the broker's queues as writable, as its topics allow, or not at all; how many topics it has.

        It holds until all of the broker's registrations are gone. None for a broker that is not known.
        """
        broker = self._brokers.get(broker_name)
        if broker is None:
            return None
        broker.is_writable = is_writable
        return len(broker.topics)

    def renew(self, broker_name: str, broker_id: int, now_s: float, *, lease_s: float = LEASE_S) -> bool:
        """A broker says that nothing has changed; False if it is not known."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker_id not in broker.expires_s:
            return False
        broker.expires_s[broker_id] = expires_s = max(broker.expires_s[broker_id], now_s + lease_s)
        held = self._epochs.get((broker_name, broker_id))
        if held is not None and held.address == broker.addresses[broker_id]:
            self._epochs[broker_name, broker_id] = replace(held, until_s=expires_s)
        return True

    def shorten_lease(self, broker_name: str, broker_id: int, expires_s: float) -> None:
        """Let a registration end then, if it would last longer."""
        broker = self._brokers.get(broker_name)
        if broker is not None and broker.expires_s.get(broker_id, 0.0) > expires_s:
            broker.expires_s[broker_id] = expires_s
            self._next_expiry_s = min(self._next_expiry_s, expires_s)

    def epoch(self, broker_name: str, broker_id: int) -> int:
        """Of which epoch the broker is the master; 0 for one that has no replicas."""
        held = self.data_version(broker_name, broker_id)
        return 0 if held is None else held.state_version

    def data_version(self, broker_name: str, broker_id: int) -> DataVersion | None:
        """Of which version the topics are that the broker told last; None if it did not say."""
        broker = self._brokers.get(broker_name)
        return broker.data_versions.get(broker_id) if broker else None

    def members(self, broker_name: str) -> dict[int, str]:
        """The addresses of a broker and its replicas by broker id; {} for one that is not known."""
        broker = self._brokers.get(broker_name)
        return dict(sorted(broker.addresses.items())) if broker else {}

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        clusters: dict[str, list[str]] = {}
        for name, broker in sorted(self._brokers.items()):
            clusters.setdefault(broker.cluster, []).append(name)
        return ClusterInfo({name: _broker_data(name, broker) for name, broker in self._brokers.items()}, clusters)

    def master_address(self, broker_name: str) -> str | None:
        """Where the broker's master listens, or None."""
        return self.address(broker_name, MASTER_ID)

    def ha_address(self, broker_name: str) -> str:
        """Where replicas copy the log of the broker's master from; blank if it did not say."""
        broker = self._brokers.get(broker_name)
        return broker.ha_addresses.get(MASTER_ID, "") if broker else ""

    def address(self, broker_name: str, broker_id: int) -> str | None:
        """Where the broker of that id listens, or None."""
        broker = self._brokers.get(broker_name)
        return broker.addresses.get(broker_id) if broker else None


def _queue_data(broker_name: str, topic: TopicConfig, is_writable: bool) -> QueueData:
    permission = topic.permission if is_writable else topic.permission & ~Permission.WRITE
    return QueueData(broker_name, topic.read_queues, topic.write_queues, int(permission))


def _broker_data(name: str, broker: _Broker) -> BrokerData:
    return BrokerData(name, dict(sorted(broker.addresses.items())), broker.cluster)
