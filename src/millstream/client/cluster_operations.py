"""Client operations about servers: list them, get their status, drain a broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.client.operations import ClientOperation, ClientOperations
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.topic import Permission
from millstream.protocol.remoting.administration.broker_report import BrokerReport, GroupBacklog
from millstream.protocol.remoting.administration.cold_checks import (
    ColdStatus,
    ObjectChecks,
    OrphanQuery,
    Orphans,
    VerificationQuery,
)
from millstream.protocol.remoting.administration.consumption import decode_consume_statistics
from millstream.protocol.remoting.administration.controller_requests import MasterFields
from millstream.protocol.remoting.bodies import ClusterInfo, decode_body, decode_topic_statistics
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import decode_java_properties, encode_java_properties
from millstream.protocol.remoting.messages.replication import HandoverRequest

__all__ = ["BrokerStatus", "ClusterOperations", "NameserverStatus", "RegisteredBroker"]

_MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True, order=True)
class RegisteredBroker:
    """One registered broker. `address` is `host:port`; id 0 is a master."""

    cluster: str
    name: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True)
class NameserverStatus:
    """What one nameserver told, or (`failure`) why nothing. `answer_ms` is how long that took."""

    address: str
    brokers: tuple[RegisteredBroker, ...]
    failure: MillstreamError | None
    answer_ms: float


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What one broker said about itself, or (`failure`) why nothing; one of another make has no report.

    `clock_ahead_ms` is how far its clock is before ours, to half of `answer_ms`.
    """

    broker: RegisteredBroker
    report: BrokerReport | None
    failure: MillstreamError | None
    answer_ms: float
    clock_ahead_ms: float | None


class ClusterOperations:
    """The operations, over the servers that `conversations` finds."""

    def __init__(self, conversations: ClientOperations) -> None:
        self._conversations = conversations

    def nameservers(self) -> ClientOperation[list[NameserverStatus]]:
        """A look at each nameserver, in the order of their names."""
        found = []
        for address in sorted(self._conversations.nameservers):
            begin_s = time.perf_counter()
            places: tuple[RegisteredBroker, ...] = ()
            failure: MillstreamError | None = None
            try:
                command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = yield from self._conversations.ask(address, command)
                places = _places(decode_body(ClusterInfo, answer.body))
            except MillstreamError as error:
                failure = error
            found.append(NameserverStatus(address, places, failure, _elapsed_ms(begin_s)))
        return found

    def list_brokers(self) -> ClientOperation[tuple[RegisteredBroker, ...]]:
        """All brokers that the first nameserver knows that answers, sorted. Raises Unreachable."""
        answer = yield from self._conversations.ask_nameserver(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        return _places(decode_body(ClusterInfo, answer.body))

    def find_broker(self, name: str) -> ClientOperation[RegisteredBroker]:
        """The master of that name; BROKER_NOT_FOUND."""
        for place in (yield from self.list_brokers()):
            if (place.name, place.broker_id) == (name, _MASTER_ID):
                return place
        raise NameRefused("BROKER_NOT_FOUND", f"No nameserver knows a broker of the name {name[:200]!r}.")

    def inspect(self, place: RegisteredBroker, *, probes_disk: bool = False) -> ClientOperation[BrokerStatus]:
        """A look at one broker; it never fails. `probes_disk` has the broker time its disk."""
        begin_s, begin_ms = time.perf_counter(), time.time() * 1000
        try:
            report = yield from self._report(place.address, probe=probes_disk)
        except MillstreamError as error:
            return BrokerStatus(place, None, error, _elapsed_ms(begin_s), None)
        answer_ms = _elapsed_ms(begin_s)
        # The disk's time comes after the clock was read, so it says nothing about the way back.
        way_ms = answer_ms - (report.sync_ms or 0.0)
        return BrokerStatus(place, report, None, answer_ms, report.now_ms - begin_ms - way_ms / 2)

    def inspect_all(
        self, places: Iterable[RegisteredBroker], *, probes_disk: bool = False
    ) -> ClientOperation[list[BrokerStatus]]:
        """A look at each, but for replicas of ours that say that they are replicas: their master tells of them."""
        looks = []
        for place in places:
            look = yield from self.inspect(place, probes_disk=probes_disk)
            is_replica = place.broker_id != _MASTER_ID
            if not (is_replica and look.failure is not None and look.failure.name == "NOT_MASTER"):
                looks.append(look)
        return looks

    def report(self, name: str) -> ClientOperation[BrokerReport]:
        """What a broker says about itself; BROKER_NOT_FOUND."""
        place = yield from self.find_broker(name)
        return (yield from self._report(place.address))

    def put_permission(self, name: str, permission: Permission) -> ClientOperation[None]:
        """Drain a broker (READ), or let it take messages again (READ and WRITE). BROKER_NOT_FOUND."""
        place = yield from self.find_broker(name)
        ext = {"permission": str(int(permission))}
        yield from self._conversations.ask(place.address, RemotingCommand(RequestCode.PUT_BROKER_PERMISSION, ext))

    def hand_over(self, name: str, broker_id: int | None = None) -> ClientOperation[MasterFields]:
        """Make another replica of a broker the master; who it is. BROKER_NOT_FOUND, and the master's refusals."""
        place = yield from self.find_broker(name)
        command = RemotingCommand(RequestCode.HAND_OVER, HandoverRequest(broker_id).encode())
        answer = yield from self._conversations.ask(place.address, command)
        return MasterFields.decode(answer.ext)

    def settings(self, name: str) -> ClientOperation[dict[str, str]]:
        """A broker's settings, by RocketMQ's names. BROKER_NOT_FOUND."""
        place = yield from self.find_broker(name)
        answer = yield from self._conversations.ask(place.address, RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        return decode_java_properties(answer.body)

    def put_settings(self, name: str, settings: Mapping[str, str]) -> ClientOperation[None]:
        """Change some of them, all or none, until the broker stops. BROKER_NOT_FOUND, and the broker's refusals."""
        place = yield from self.find_broker(name)
        command = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, {}, encode_java_properties(settings))
        yield from self._conversations.ask(place.address, command)

    def report_backlog(self, name: str) -> ClientOperation[BrokerReport]:
        """The broker's report, and in its backlog also what groups have not begun there that read the topic elsewhere.

        A broker that cannot be asked which groups it has is passed over. BROKER_NOT_FOUND.
        """
        place = yield from self.find_broker(name)
        report = yield from self._report(place.address, readers=True)
        own = report.readers or {}
        elsewhere: dict[str, set[str]] = {}
        for other in (yield from self.list_brokers()):
            if other.broker_id == _MASTER_ID and other.name != name:
                for topic, readers in (yield from self._readers(other.address)).items():
                    elsewhere.setdefault(topic, set()).update(readers)
        for topic, groups in elsewhere.items():
            for group in sorted(groups - set(own.get(topic, ()))):
                waiting = yield from self._not_begun(place.address, group, topic)
                if waiting:
                    report.backlog.append(GroupBacklog(group, topic, waiting))
                    report.waiting_messages += waiting
        return report

    def cold_status(self, name: str) -> ClientOperation[ColdStatus]:
        """What of a broker's queues lies in an object store. BROKER_NOT_FOUND, TIERED_STORAGE_OFF."""
        place = yield from self.find_broker(name)
        answer = yield from self._conversations.ask(place.address, RemotingCommand(RequestCode.GET_COLD_STATUS))
        return decode_body(ColdStatus, answer.body)

    def verify_cold(self, place: RegisteredBroker, query: VerificationQuery) -> ClientOperation[ObjectChecks]:
        """Have a broker read some of its objects and check them. TIERED_STORAGE_OFF, and what the store refuses."""
        command = RemotingCommand(RequestCode.VERIFY_COLD_OBJECTS, query.encode())
        return decode_body(ObjectChecks, (yield from self._conversations.ask(place.address, command)).body)

    def collect_orphans(self, place: RegisteredBroker, query: OrphanQuery) -> ClientOperation[Orphans]:
        """Have a broker look through a part of its objects for orphans. Raises as `verify_cold`."""
        command = RemotingCommand(RequestCode.COLLECT_ORPHANS, query.encode())
        return decode_body(Orphans, (yield from self._conversations.ask(place.address, command)).body)

    def _report(self, address: str, **fields: bool) -> ClientOperation[BrokerReport]:
        ext = {name: "true" for name, value in fields.items() if value}
        answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_BROKER_REPORT, ext))
        return decode_body(BrokerReport, answer.body)

    def _readers(self, address: str) -> ClientOperation[dict[str, list[str]]]:
        try:
            return (yield from self._report(address, readers=True)).readers or {}
        except MillstreamError:
            return {}

    def _not_begun(self, address: str, group: str, topic: str) -> ClientOperation[int]:
        ext = {"consumerGroup": group, "topic": topic}
        try:
            answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_CONSUME_STATS, ext))
        except NameRefused as refused:
            return 0 if refused.name == "TOPIC_NOT_FOUND" else (yield from self._count_messages(address, topic))
        return sum(item.progress.ready for item in decode_consume_statistics(answer.body))

    def _count_messages(self, address: str, topic: str) -> ClientOperation[int]:
        """All messages of the topic: a group that the broker has never seen begins with the first one."""
        command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        try:
            answer = yield from self._conversations.ask(address, command)
        except NameRefused:
            return 0
        return sum(item.range.max_offset - item.range.min_offset for item in decode_topic_statistics(answer.body))


def _places(info: ClusterInfo) -> tuple[RegisteredBroker, ...]:
    clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
    return tuple(
        sorted(
            RegisteredBroker(clusters.get(name, broker.cluster), name, broker_id, address)
            for name, broker in info.broker_addr_table.items()
            for broker_id, address in broker.broker_addrs.items()
        )
    )


def _elapsed_ms(begin_s: float) -> float:
    return (time.perf_counter() - begin_s) * 1000
