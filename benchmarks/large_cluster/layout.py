"""Who is in the simulated cluster: broker sets with their replicas and topics, proxies and clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat
from millstream.protocol.remoting.administration.registration import BrokerIdentity

__all__ = ["SMALL", "WHOLE", "Layout", "Member"]

_POLL_S = 30


@dataclass(frozen=True, slots=True)
class Member:
    """One broker process: its set, counted from 0, and its controller id, from 1. At first id 1 is the master."""

    set_number: int
    id: int

    @property
    def name(self) -> str:
        """The broker name, which all replicas of the set share."""
        return f"broker-{self.set_number:05d}"

    @property
    def address(self) -> str:
        """Where clients would connect to."""
        return f"10.{self.id}.{self.set_number // 250}.{self.set_number % 250}:10911"


@dataclass(frozen=True, slots=True)
class Layout:
    """How large everything is. A topic lies on all sets of one cluster, as tools of RocketMQ make it (`-c`)."""

    sets: int = 500
    replicas: int = 3
    topics: int = 100_000
    sets_per_cluster: int = 10
    proxies: int = 200
    topics_per_proxy: int = 500
    """Routes that one proxy keeps, each of which it asks for every 30 s."""
    clients: int = 100_000
    """Clients that ask the nameserver themselves, each for one topic every 30 s."""
    rack: int = 100
    """Masters that die at one time."""

    @property
    def topics_per_set(self) -> int:
        """Topics of each broker."""
        return self.topics * self.sets_per_cluster // self.sets

    @property
    def routes_a_second(self) -> float:
        """Routes that proxies and clients ask for, if all of them ask one nameserver."""
        return (self.proxies * self.topics_per_proxy + self.clients) / _POLL_S

    def members(self) -> Iterator[Member]:
        """All broker processes, masters first."""
        for number in range(1, self.replicas + 1):
            for set_number in range(self.sets):
                yield Member(set_number, number)

    def topics_of(self, set_number: int) -> list[TopicConfig]:
        """The topics of a set."""
        cluster = set_number // self.sets_per_cluster
        first = cluster * self.topics_per_set
        return [TopicConfig(topic_name(number)) for number in range(first, first + self.topics_per_set)]

    def identity(self, member: Member, *, master: int = 1, epoch: int = 1) -> BrokerIdentity:
        """As whom a broker registers while that replica is the master: id 0 at nameservers."""
        cluster = f"cluster-{member.set_number // self.sets_per_cluster:03d}"
        broker_id = 0 if member.id == master else member.id
        return BrokerIdentity(cluster, member.name, member.address, broker_id, epoch)

    def heartbeat(self, member: Member) -> BrokerHeartbeat:
        """What a broker tells the controllers twice a second."""
        cluster = f"cluster-{member.set_number // self.sets_per_cluster:03d}"
        return BrokerHeartbeat(cluster, member.address, member.name, member.id, 1, 1_000_000, 1_000_000)


WHOLE = Layout()
SMALL = Layout(sets=6, topics=60, sets_per_cluster=2, proxies=2, topics_per_proxy=5, clients=20, rack=2)


def topic_name(number: int) -> str:
    """The name of a topic by its number."""
    return f"team-{number // 100:04d}_orders_of_the_shop_{number:06d}"
