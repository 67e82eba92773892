"""What the client asks of nameservers and brokers, sans-io: one generator per operation.

An operation yields a `RequestStep` and is sent the answer, or is thrown the error; its return value is the result. The
asyncio client and the blocking client only differ in how they carry out a `RequestStep`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from millstream.client import requests
from millstream.client.failover import FAILOVER_BACKOFF, check_master, follow_master, was_not_done
from millstream.client.replica_reads import ReadFrom, ReplicaReads
from millstream.client.requests import ClientOperation, RequestStep
from millstream.client.routes import (
    ROUTE_LIFETIME_S,
    KnownRoutes,
    ask_queue,
    logic_queues,
    logic_ranges,
    mappings_of,
    present_place,
)
from millstream.client.values import BrokerQueueRange, PullBatch, QueueAddress, SendResult
from millstream.model.errors import ConnectionFailed, MessageRefused, MillstreamError, NameRefused, Unreachable
from millstream.model.filter import ALL, MessageFilter
from millstream.model.handles import RecallHandle
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, is_light_queue
from millstream.model.message import StoredMessage
from millstream.model.topic import Permission
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    TopicRouteData,
    decode_body,
    decode_topic_statistics,
)
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.cold_ranges import ColdRangesBody, ColdRangesCall
from millstream.protocol.remoting.messages.offsets import (
    GroupOffset,
    OffsetQuery,
    encode_group_offset,
    encode_offset_query,
)
from millstream.protocol.remoting.refusals import error_of

__all__ = [
    "FAILOVER_S",
    "MAX_LOST_ADDRESSES",
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

FAILOVER_S: Final = 3.0
"""Seconds after its first failure for which a request looks for its broker's new master, where the client says
nothing else: clients say their own time limit."""

MAX_LOST_ADDRESSES: Final = 1024
"""Addresses where no master was that a client remembers at most."""

_MASTER_ID = 0

_NO_LANE: Final = frozenset(("REQUEST_NOT_SUPPORTED", "UNSUPPORTED_FEATURE"))
"""Refusals that say nothing of where a queue lies."""

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
    """The operations. It keeps the routes it has learned; one instance belongs to one client.

    A broker's master may change its address. Which operations are tried again, for `failover_s` after the first failure
    and each time by a route that is asked for again:

    | operation | no connection, or NOT_MASTER | connection closed with the request under way | TimedOut |
    |---|---|---|---|
    | send | again | not there: at another broker where `may_move` allows it | never |
    | pull, ranges, offset by time, search by key, query of an offset | again | again: they change nothing | never |
    | commit of an offset | again | again: the same offset is kept twice | never |
    | recall, administration | never: the caller does | never: a second one might be refused | never |
    """

    def __init__(
        self, nameservers: Sequence[str], *, group: str = requests.DEFAULT_GROUP, failover_s: float = FAILOVER_S
    ) -> None:
        self._nameservers = list(nameservers)
        self._group = group
        self._failover_s = failover_s
        self._lost: dict[str, None] = {}
        """Where requests failed that reached no master; one that is the master again is no worse off for it."""
        self._routes = KnownRoutes()
        self.readers = ReplicaReads(self)
        """How messages are asked for that replicas have as well."""

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
        """The queues with that permission on brokers that have a master, sorted; may be empty.

        A light queue is at every broker and has no route; whether it was declared is for the brokers to say.
        """
        if is_light_queue(topic):
            brokers = yield from self._brokers()
            addresses = sorted((one.broker_name, one.broker_addrs.get(_MASTER_ID, "")) for one in brokers)
            return [QueueAddress(topic, name, LIGHT_QUEUE_NUMBER, address) for name, address in addresses if address]
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

    def queue_ranges(
        self, topic: str, *, read_from: ReadFrom = ReadFrom.MASTER
    ) -> ClientOperation[list[BrokerQueueRange]]:
        """What can be read of each queue, sorted by broker and queue; one atomic look per broker.

        With REPLICA a replica is asked where the master does not answer: it may know of less.
        """
        return (yield from self._following(topic, lambda _: self._queue_ranges(topic, read_from)))

    def _queue_ranges(self, topic: str, read_from: ReadFrom) -> ClientOperation[list[BrokerQueueRange]]:
        route = yield from self.route(topic)
        if mappings_of(route):
            return (yield from logic_ranges(self, topic))
        found = []
        for broker in route.broker_datas:
            command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            answer = yield from self.readers.ask_readable(topic, broker, command, read_from)
            if answer is None:
                # Left out, its queues would look as if they held nothing.
                raise Unreachable(f"The broker {broker.broker_name} has no master now.")
            address = broker.broker_addrs.get(_MASTER_ID, "") or next(iter(broker.broker_addrs.values()))
            for item in decode_topic_statistics(answer.body):
                queue = QueueAddress(topic, broker.broker_name, item.range.queue_id, address)
                found.append(BrokerQueueRange(broker.broker_name, item.range, queue))
        return sorted(found, key=lambda item: item.queue)

    def offset_by_time(
        self,
        queue: QueueAddress,
        timestamp_ms: int,
        *,
        upper: bool = False,
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> ClientOperation[int]:
        """The first offset stored at `timestamp_ms` or later; `upper`: the last one stored then or earlier.

        With REPLICA as `queue_ranges`.
        """
        ext = {
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "timestamp": str(timestamp_ms),
            "boundaryType": "UPPER" if upper else "LOWER",
        }
        command = RemotingCommand(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        answer = None
        broker = None
        if read_from is ReadFrom.REPLICA:
            broker = yield from self.readers.broker_of(queue.topic, queue.broker_name)
        if broker is not None:
            with contextlib.suppress(ConnectionFailed):
                answer = yield from self.readers.ask_readable(queue.topic, broker, command, read_from, queue.queue_id)
        if answer is None:
            answer = yield from self._ask_queue(queue, command)
        return requests.answered_integer(answer, "offset", queue.broker_address)

    def cold_ranges(self, queue: QueueAddress, begin: int, end: int) -> ClientOperation[list[ColdRangesBody]]:
        """Where the messages of a queue from `begin` to before `end` lie that the broker's disk no longer holds.

        One answer after the other. Raises REQUEST_NOT_SUPPORTED at a broker that knows no such request.
        """
        found: list[ColdRangesBody] = []
        while begin < end:
            call = ColdRangesCall(self._group, queue.topic, queue.queue_id, begin, end)
            answer = yield from self._ask_queue(queue, RemotingCommand(RequestCode.COLD_RANGES, call.encode()))
            body = decode_body(ColdRangesBody, answer.body)
            if body.end_offset <= begin:
                words = f"{queue.broker_address} tells of offsets up to {body.end_offset} where {begin} was asked for."
                raise ConnectionFailed("PROTOCOL_VIOLATION", words)
            found.append(body)
            begin = body.end_offset
        return found

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
        read_from: ReadFrom = ReadFrom.MASTER,
    ) -> ClientOperation[PullBatch]:
        """Records from `offset` on; after `wait_ms` without any, a batch without records."""

        def ask(wait_ms: int) -> RemotingCommand:
            return requests.pull(
                queue, offset, group=self._group, max_messages=max_messages, max_bytes=max_bytes, wait_ms=wait_ms,
                filter=filter,
            )  # fmt: skip

        answer = yield from self.readers.ask(queue, ask, wait_ms=wait_ms, read_from=read_from)
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
        return (yield from self._following(topic, lambda _: self._find_by_key(topic, ext, max_results)))

    def _find_by_key(self, topic: str, ext: dict[str, str], max_results: int) -> ClientOperation[list[StoredMessage]]:
        route = yield from self.route(topic)
        found: list[StoredMessage] = []
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(_MASTER_ID)
            if address is None:
                continue
            answer = yield RequestStep(address, RemotingCommand(RequestCode.QUERY_MESSAGE, dict(ext)))
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
        """Store the messages of a send request in that queue, all or none; see `repeat_send` for what is sent again."""

        def store(place: QueueAddress, delay_s: float) -> ClientOperation[list[SendResult]]:
            requests.address_to(command, place)
            answer = yield from ask_queue(self, place, command, delay_s=delay_s)
            return requests.send_results_of(answer, place, message_ids)

        return (yield from self.repeat_send(queue, store, retries=retries, may_move=may_move))

    def repeat_send(
        self,
        queue: QueueAddress,
        store: Callable[[QueueAddress, float], ClientOperation[_T]],
        *,
        retries: int,
        may_move: bool = False,
    ) -> ClientOperation[_T]:
        """What `store` gives for the queue, which it is called with and the seconds to wait before the request.

        It is called again where nothing was stored because no master was reached, until one is; up to `retries` times
        where the broker is busy; and where a connection closed with the request under way, only for another broker:
        `may_move` lets it go there, and a message may be stored twice then. Never after TimedOut.
        """
        queue = self.present(queue)
        failures, delay_s, deadline_s = 0, 0.0, float("inf")
        while True:
            try:
                return (yield from store(queue, delay_s))
            except MillstreamError as error:
                self._note_failed_send(queue, error)
                now_s = time.monotonic()
                deadline_s = min(deadline_s, now_s + self._failover_s)
                if not (now_s < deadline_s if was_not_done(error) else failures < retries and may_pass(error)):
                    raise
                failure = error
            failures += 1
            moves = may_move or failure.name == "BROKER_DRAINED"
            former, queue = queue, (yield from self.refresh(queue, elsewhere=moves))
            if isinstance(failure, Unreachable) and not was_not_done(failure) and _is_same_broker(queue, former):
                raise failure
            delay_s = _wait_before_send_s(failure, failures, is_same_place=queue == former)

    def _note_failed_send(self, queue: QueueAddress, error: MillstreamError) -> None:
        if error.name not in _NO_LANE:
            self.note_failure(queue.topic, error)
        if was_not_done(error):
            self._note_lost(queue.broker_address)

    def recall(self, handle: RecallHandle) -> ClientOperation[None]:
        """Take a delayed message back, at the broker that its handle names. MESSAGE_NOT_FOUND."""
        ext = {"producerGroup": self._group, "topic": handle.topic, "recallHandle": handle.encode()}
        route = yield from self.route(handle.topic)
        for broker in route.broker_datas:
            address = broker.broker_addrs.get(_MASTER_ID)
            if address is not None and broker.broker_name == handle.broker_name:
                command = RemotingCommand(RequestCode.RECALL_MESSAGE, ext)
                yield from self.ask_broker(handle.topic, address, command)
                return
        words = f"The topic {handle.topic[:200]!r} has no broker {handle.broker_name[:80]!r}, which the handle names."
        raise MessageRefused("ILLEGAL_RECALL_HANDLE", words)

    def refresh(self, queue: QueueAddress, *, elsewhere: bool = False) -> ClientOperation[QueueAddress]:
        """The same queue at its broker's present address, or (`elsewhere`) one of another broker, if there is one.

        As far as a nameserver can be asked.
        """
        try:
            present = (yield from self.queues(queue.topic, Permission.WRITE)) if elsewhere else []
            place = present_place(queue, (yield from self.route(queue.topic)))
        except MillstreamError:
            return queue
        return requests.choose_other_broker(place, present) if elsewhere else place

    def present(self, queue: QueueAddress) -> QueueAddress:
        """The same queue; where no master was at its address of late, where the last route has it."""
        route = self._routes.last(queue.topic) if queue.broker_address in self._lost else None
        return queue if route is None else present_place(queue, route)

    # consumer offsets

    def query_offset(self, group: str, queue: QueueAddress) -> ClientOperation[int | None]:
        """The group's committed offset, or None."""
        ext = encode_offset_query(OffsetQuery(group, queue.topic, queue.queue_id, or_first=False))
        command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        answer = yield from self.ask_holder(queue, command)
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

    def ask_masters(self, command: RemotingCommand) -> ClientOperation[list[RemotingCommand]]:
        """The answers of all masters to an administrative request; the refusal of the first one that refuses."""
        answers: list[RemotingCommand] = []
        for address in (yield from self.masters()):
            answers += [(yield from self.ask(address, command))]
        return answers

    def masters(self) -> ClientOperation[list[str]]:
        """The addresses of all masters, sorted; Unreachable where there is none."""
        brokers = yield from self._brokers()
        addresses = sorted(broker.broker_addrs[_MASTER_ID] for broker in brokers if _MASTER_ID in broker.broker_addrs)
        if not addresses:
            raise Unreachable(f"The nameserver {self._nameservers[0]} knows no broker.")
        return addresses

    def _brokers(self) -> ClientOperation[list[BrokerData]]:
        answer = yield from self.ask_nameserver(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        return list(decode_body(ClusterInfo, answer.body).broker_addr_table.values())

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
        """As `ask_broker`, of the broker that stores the queue; again where that changes nothing more."""
        answer = yield from self.ask_holder(queue, command)
        try:
            _check(answer, queue.broker_address)
        except NameRefused as error:
            self.note_failure(queue.topic, error)
            raise
        return answer

    def ask_holder(
        self, queue: QueueAddress, command: RemotingCommand, *, extra_wait_s: float = 0.0
    ) -> ClientOperation[RemotingCommand]:
        """The answer of the master that stores the queue, whatever its code, to a request that may be repeated."""

        def attempt(number: int) -> ClientOperation[RemotingCommand]:
            place = self.present(queue) if number == 0 else (yield from self.refresh(queue))
            try:
                answer = yield from ask_queue(self, place, command, extra_wait_s=extra_wait_s)
                return check_master(answer, place.broker_address)
            except ConnectionFailed:
                self._note_lost(place.broker_address)
                raise

        return (yield from self._following(queue.topic, attempt))

    def _following(self, topic: str, attempt: Callable[[int], ClientOperation[_T]]) -> ClientOperation[_T]:
        """What the attempt gives, which is repeated while the topic's brokers change their masters."""
        return (yield from follow_master(attempt, partial(self.note_failure, topic), self._failover_s))

    def _note_lost(self, address: str) -> None:
        self._lost[address] = None
        if len(self._lost) > MAX_LOST_ADDRESSES:
            del self._lost[next(iter(self._lost))]

    def ask_broker(self, topic: str, address: str, command: RemotingCommand) -> ClientOperation[RemotingCommand]:
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


def _is_same_broker(one: QueueAddress, other: QueueAddress) -> bool:
    return one.broker_name == other.broker_name


def _wait_before_send_s(failure: MillstreamError, failures: int, *, is_same_place: bool) -> float:
    if not was_not_done(failure):
        return RETRY_DELAY_S * failures
    return FAILOVER_BACKOFF.wait_s(failures - 1) if is_same_place else 0.0


def may_pass(error: MillstreamError) -> bool:
    """Whether a send that failed with the error is worth another try."""
    return isinstance(error, Unreachable) or error.name in ("TOO_MANY_REQUESTS", "BROKER_DRAINED")
