"""What the client asks of nameservers and brokers, sans-io: one generator per operation.

An operation yields a `RequestStep` and is sent the answer, or is thrown the error; its return value is the result. The
asyncio client and the blocking client only differ in how they carry out a `RequestStep`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from millstream.client import requests
from millstream.client.requests import ClientOperation, RequestStep
from millstream.client.routes import ROUTE_LIFETIME_S, KnownRoutes, ask_queue, logic_queues, logic_ranges, mappings_of
from millstream.client.values import BrokerQueueRange, PullBatch, QueueAddress, SendResult
from millstream.model.errors import ConnectionFailed, MessageRefused, MillstreamError, NameRefused, Unreachable
from millstream.model.filter import ALL, MessageFilter
from millstream.model.handles import RecallHandle
from millstream.model.message import StoredMessage
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.administration.settings import decode_topic_table, topic_fields
from millstream.protocol.remoting.bodies import (
    ClusterInfo,
    TopicRouteData,
    decode_body,
    decode_topic_statistics,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import (
    GroupOffset,
    OffsetQuery,
    encode_group_offset,
    encode_offset_query,
)
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "RETRY_DELAY_S",
    "ROUTE_LIFETIME_S",
    "SEND_RETRIES",
    "ClientOperation",
    "ClientOperations",
    "RequestStep",
    "may_pass",
    "parse_addresses",
]

SEND_RETRIES: Final = 2
"""Times that a failed send is repeated, as in RocketMQ's clients."""

RETRY_DELAY_S: Final = 0.1
"""Seconds before the first repetition of a send; the second one waits twice as long."""

_MASTER_ID = 0

_T = TypeVar("_T")


def parse_addresses(text: str) -> tuple[str, ...]:
    """The `host:port` addresses of a text, separated by `;` or `,`. ValueError for one without a port."""
    addresses = tuple(filter(None, (part.strip() for part in text.replace(",", ";").split(";"))))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{address!r} is no address of the form host:port")
    if not addresses:
        raise ValueError("no nameserver is named")
    return addresses


class ClientOperations:
    """The operations. It keeps the routes it has learned; one instance belongs to one client."""

    def __init__(self, nameservers: Sequence[str], *, group: str = requests.DEFAULT_GROUP) -> None:
        self._nameservers = list(nameservers)
        self._group = group
        self._routes = KnownRoutes()

    @property
    def nameservers(self) -> tuple[str, ...]:
        """Their addresses; those that failed last come last."""
        return tuple(self._nameservers)

    # topics and queues

    def route(self, topic: str) -> ClientOperation[TopicRouteData]:
        """The topic's route, at most `ROUTE_LIFETIME_S` old, or the last one where no nameserver answers.

        Raises TOPIC_NOT_FOUND.
        """
        known = self._routes.fresh(topic, time.monotonic())
        if known is not None:
            return known
        command = RemotingCommand(RequestCode.GET_ROUTE_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        try:
            answer = yield from self.ask_nameserver(command)
        except ConnectionFailed:
            known = self._routes.note_no_answer(topic, time.monotonic())
            if known is None:
                raise
            return known
        except NameRefused:
            known = self._routes.note_denial(topic, time.monotonic())
            if known is None:
                raise
            return known
        route = decode_body(TopicRouteData, answer.body)
        self._routes.learn(topic, route, time.monotonic())
        return route

    def forget_route(self, topic: str) -> None:
        """Ask the nameserver again before the next use of the topic, and use no older route."""
        self._routes.forget(topic)

    def doubt_route(self, topic: str) -> None:
        """Ask the nameserver again before the next use of the topic, as far as one answers."""
        self._routes.doubt(topic)

    def queues(self, topic: str, permission: Permission = Permission.READ) -> ClientOperation[list[QueueAddress]]:
        """The queues with that permission on brokers that have a master, sorted; may be empty."""
        route = yield from self.route(topic)
        if mappings_of(route):
            return logic_queues(topic, route)
        masters = {broker.broker_name: broker.broker_addrs.get(_MASTER_ID) for broker in route.broker_datas}
        found = []
        for data in route.queue_datas:
            address = masters.get(data.broker_name)
            if address and data.perm & permission:
                count = data.write_queue_nums if permission is Permission.WRITE else data.read_queue_nums
                found += [QueueAddress(topic, data.broker_name, number, address) for number in range(count)]
        return sorted(found)

    def queue_ranges(self, topic: str) -> ClientOperation[list[BrokerQueueRange]]:
        """What can be read of each queue, sorted by broker and queue; one atomic look per broker."""
        route = yield from self.route(topic)
        if mappings_of(route):
            return (yield from logic_ranges(self, topic))
        found = []
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(_MASTER_ID)
            if address is None:
                continue
            command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            answer = yield from self._ask_broker(topic, address, command)
            for item in decode_topic_statistics(answer.body):
                queue = QueueAddress(topic, broker.broker_name, item.range.queue_id, address)
                found.append(BrokerQueueRange(broker.broker_name, item.range, queue))
        return sorted(found, key=lambda item: item.queue)

    def offset_by_time(self, queue: QueueAddress, timestamp_ms: int, *, upper: bool = False) -> ClientOperation[int]:
        """The first offset stored at `timestamp_ms` or later; `upper`: the last one stored then or earlier."""
        ext = {
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "timestamp": str(timestamp_ms),
            "boundaryType": "UPPER" if upper else "LOWER",
        }
        command = RemotingCommand(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        answer = yield from self._ask_queue(queue, command)
        return requests.answered_integer(answer, "offset", queue.broker_address)

    # messages

    def pull(
        self,
        queue: QueueAddress,
        offset: int,
        *,
        max_messages: int = requests.DEFAULT_PULL_MESSAGES,
        max_bytes: int = requests.DEFAULT_PULL_BYTES,
        wait_ms: int = 0,
        filter: MessageFilter = ALL,
    ) -> ClientOperation[PullBatch]:
        """Records from `offset` on; after `wait_ms` without any, a batch without records."""
        command = requests.pull(
            queue, offset, group=self._group, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms,
            filter=filter,
        )  # fmt: skip
        answer = yield from ask_queue(self, queue, command, extra_wait_s=wait_ms / 1000)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self.forget_route(queue.topic)
        elif answer.code not in requests.PULL_STATUSES:
            self.doubt_route(queue.topic)
        return requests.pull_batch_of(answer, queue.broker_address, offset=offset)

    def find_by_key(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, max_results: int
    ) -> ClientOperation[list[StoredMessage]]:
        """Messages with the key or unique key, newest first, of all brokers that have the topic."""
        ext = {
            "topic": topic,
            "key": key,
            "maxNum": str(max_results),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
        }
        route = yield from self.route(topic)
        found: list[StoredMessage] = []
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(_MASTER_ID)
            if address is None:
                continue
            answer = yield RequestStep(address, RemotingCommand(RequestCode.QUERY_MESSAGE, ext))
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            _check(answer, address)
            found += [decode_record(record) for record in iterate_records(answer.body)]
        return sorted(found, key=lambda message: message.store_timestamp_ms, reverse=True)[:max_results]

    def send(
        self,
        queue: QueueAddress,
        command: RemotingCommand,
        message_ids: Sequence[str],
        *,
        retries: int = SEND_RETRIES,
        may_move: bool = False,
    ) -> ClientOperation[list[SendResult]]:
        """Store the messages of a send request in that queue, all or none.

        Sends again up to `retries` times where the broker cannot be reached or is busy; a message may be stored twice
        then. Not after TimedOut: the request may still be under way. `may_move` lets it go to another broker then.
        """
        for attempt in range(retries + 1):
            try:
                answer = yield from ask_queue(self, queue, command, delay_s=RETRY_DELAY_S * attempt)
                return requests.send_results_of(answer, queue, message_ids)
            except MillstreamError as error:
                self.note_failure(queue.topic, error)
                if attempt == retries or not may_pass(error):
                    raise
                moves = may_move or error.name == "BROKER_DRAINED"
            queue = yield from self.refresh(queue, elsewhere=moves)
            requests.address_to(command, queue)
        raise AssertionError("the last attempt returns or raises")

    def recall(self, handle: RecallHandle) -> ClientOperation[None]:
        """Take a delayed message back, at the broker that its handle names. MESSAGE_NOT_FOUND."""
        ext = {"producerGroup": self._group, "topic": handle.topic, "recallHandle": handle.encode()}
        route = yield from self.route(handle.topic)
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(_MASTER_ID)
            if address is not None and broker.broker_name == handle.broker_name:
                command = RemotingCommand(RequestCode.RECALL_MESSAGE, ext)
                yield from self._ask_broker(handle.topic, address, command)
                return
        words = f"The topic {handle.topic[:200]!r} has no broker {handle.broker_name[:80]!r}, which the handle names."
        raise MessageRefused("ILLEGAL_RECALL_HANDLE", words)

    def refresh(self, queue: QueueAddress, *, elsewhere: bool = False) -> ClientOperation[QueueAddress]:
        """The same queue at its broker's present address, or (`elsewhere`) one of another broker, if there is one.

        As far as a nameserver can be asked.
        """
        try:
            present = yield from self.queues(queue.topic, Permission.WRITE)
        except MillstreamError:
            present = []
        return requests.choose_other_broker(queue, present) if elsewhere else requests.refresh_address(queue, present)

    # consumer offsets

    def query_offset(self, group: str, queue: QueueAddress) -> ClientOperation[int | None]:
        """The group's committed offset, or None."""
        ext = encode_offset_query(OffsetQuery(group, queue.topic, queue.queue_id, or_first=False))
        command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        answer = yield from ask_queue(self, queue, command)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        _check(answer, queue.broker_address)
        return requests.answered_integer(answer, "offset", queue.broker_address)

    def commit_offset(self, group: str, queue: QueueAddress, offset: int) -> ClientOperation[None]:
        """Keep the group's offset in the broker."""
        ext = encode_group_offset(GroupOffset(group, queue.topic, queue.queue_id, offset))
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        yield from self._ask_queue(queue, command)

    # administration

    def create_topic(self, config: TopicConfig) -> ClientOperation[None]:
        """Create the topic on every master; TOPIC_EXISTS where it is there with other settings."""
        self.forget_route(config.name)
        ext = topic_fields(config)
        for address in (yield from self.masters()):
            yield from self.ask(address, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, dict(ext)))

    def add_queues(self, name: str, queues: int) -> ClientOperation[None]:
        """Give a topic so many queues on every master that has it; nothing else of it changes.

        Raises TOPIC_NOT_FOUND, FEWER_QUEUES, and ILLEGAL_STATIC_TOPIC for one whose queues are the cluster's.
        """
        self.forget_route(name)
        if mappings_of((yield from self.route(name))):
            words = f"The queues of the static topic {name!r} are the cluster's, not those of a broker."
            remedy = f"Run millstream topic create {name} --static --queues {queues}."
            raise NameRefused("ILLEGAL_STATIC_TOPIC", words, remedy=remedy)
        held: dict[str, TopicConfig] = {}
        for address in (yield from self.masters()):
            answer = yield from self.ask(address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
            held.update((address, topic) for topic in decode_topic_table(answer.body) if topic.name == name)
        if not held:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")
        most = max(topic.queues for topic in held.values())
        if queues < most:
            raise NameRefused("FEWER_QUEUES", f"The topic {name!r} has {most} queues and cannot have {queues}.")
        for address, topic in held.items():
            ext = topic_fields(replace(topic, read_queues=queues, write_queues=queues))
            del ext["createOnly"]
            yield from self.ask(address, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))
        self.forget_route(name)

    def delete_topic(self, name: str) -> ClientOperation[None]:
        """Delete the topic on every broker that holds it; TOPIC_NOT_FOUND."""
        self.forget_route(name)
        route = yield from self.route(name)
        self.forget_route(name)
        for broker in route.broker_datas:
            for address in broker.broker_addrs.values():
                command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name})
                yield from self.ask(address, command)
        for address in list(self._nameservers):
            # One that is down hears from the brokers what is left, once it is back.
            with contextlib.suppress(ConnectionFailed):
                yield from self.ask(address, RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESERVER, {"topic": name}))

    def topics(self) -> ClientOperation[list[TopicConfig]]:
        """All topics of all masters, by name."""
        found: dict[str, TopicConfig] = {}
        for address in (yield from self.masters()):
            answer = yield from self.ask(address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
            for topic in decode_topic_table(answer.body):
                found.setdefault(topic.name, topic)
        return [found[name] for name in sorted(found)]

    def describe_topic(self, name: str) -> ClientOperation[TopicConfig]:
        """One topic's settings; TOPIC_NOT_FOUND."""
        for topic in (yield from self.topics()):
            if topic.name == name:
                return topic
        raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")

    def ask_masters(self, command: RemotingCommand) -> ClientOperation[list[RemotingCommand]]:
        """The answers of all masters to an administrative request; the refusal of the first one that refuses."""
        answers: list[RemotingCommand] = []
        for address in (yield from self.masters()):
            answers += [(yield from self.ask(address, command))]
        return answers

    def masters(self) -> ClientOperation[list[str]]:
        """The addresses of all masters, sorted; Unreachable where there is none."""
        answer = yield from self.ask_nameserver(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        brokers = decode_body(ClusterInfo, answer.body).broker_addr_table.values()
        addresses = sorted(broker.broker_addrs[_MASTER_ID] for broker in brokers if _MASTER_ID in broker.broker_addrs)
        if not addresses:
            raise Unreachable(f"The nameserver {self._nameservers[0]} knows no broker.")
        return addresses

    def ask_nameserver(self, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
        """The first nameserver that answers; the ones that failed are asked last from then on."""
        failure: ConnectionFailed | None = None
        for address in list(self._nameservers):
            try:
                return (yield from self.ask(address, command))
            except ConnectionFailed as error:
                failure = failure or error
                self._nameservers.remove(address)
                self._nameservers.append(address)
        assert failure is not None
        raise failure

    def _ask_queue(self, queue: QueueAddress, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
        """As `_ask_broker`, of the broker that stores the queue."""
        try:
            answer = yield from ask_queue(self, queue, command)
            _check(answer, queue.broker_address)
        except (ConnectionFailed, NameRefused) as error:
            self.note_failure(queue.topic, error)
            raise
        return answer

    def _ask_broker(self, topic: str, address: str, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
        """As `ask`; after a failure the topic's route, which may have led to the wrong place, is asked for again."""
        try:
            return (yield from self.ask(address, command))
        except (ConnectionFailed, NameRefused) as error:
            self.note_failure(topic, error)
            raise

    def note_failure(self, topic: str, error: MillstreamError) -> None:
        """A broker did not do what was asked: ask for the topic's route before its next use."""
        if error.name == "TOPIC_NOT_FOUND":
            self.forget_route(topic)
        else:
            self.doubt_route(topic)

    def ask(self, address: str, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
        """The answer to one request; the error that it stands for otherwise."""
        answer = yield RequestStep(address, command)
        _check(answer, address)
        return answer


def _check(answer: RemotingCommand, address: str) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, address)


def may_pass(error: MillstreamError) -> bool:
    """Whether a send that failed with the error is worth another try."""
    return isinstance(error, Unreachable) or error.name in ("TOO_MANY_REQUESTS", "BROKER_DRAINED")
