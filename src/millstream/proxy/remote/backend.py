"""The backend of a proxy whose brokers are other processes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from millstream.client import requests
from millstream.client.failover import has_lost_master, was_not_done
from millstream.client.values import QueueAddress
from millstream.model.clock import Clock, SystemClock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import (
    ConnectionFailed,
    ConsumeRefused,
    MessageRefused,
    MillstreamError,
    NameRefused,
    Unreachable,
)
from millstream.model.group import GroupConfig
from millstream.model.handles import RecallHandle, ReceiptHandle
from millstream.model.lite import LiteAction, LiteSync
from millstream.model.message import OutgoingMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    PullRequest,
    PullResult,
    QueuePoint,
    QueueProgress,
    Resolution,
    SendReceipt,
)
from millstream.model.topic import TopicConfig
from millstream.protocol.record import iterate_records
from millstream.protocol.remoting.administration.broker_requests import DeliveriesRelease
from millstream.protocol.remoting.administration.consumption import decode_consume_statistics
from millstream.protocol.remoting.administration.settings import decode_group
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.protocol.remoting.messages.lite import decode_lite_losses, encode_lite_sync
from millstream.protocol.remoting.messages.offsets import ProgressQuery, encode_progress_query
from millstream.protocol.remoting.messages.popping import (
    decode_change_answer,
    encode_ack,
    encode_change,
)
from millstream.proxy.backend import TopicRoute
from millstream.proxy.remote.access import AccessFollower
from millstream.proxy.remote.connection_pool import BrokerCallbacks, BrokerConnectionPool, check_success
from millstream.proxy.remote.forwarded_clients import ForwardedClients
from millstream.proxy.remote.master_watch import MasterWatch
from millstream.proxy.remote.popper import RemotePopper, wait_until
from millstream.proxy.remote.request_forwarder import RequestForwarder
from millstream.proxy.remote.routes import FAILOVER_S, REFRESH_INTERVAL_S, ClusterRule, Clusters, KnownRoute, RouteCache
from millstream.proxy.remote.sender import RemoteSender
from millstream.proxy.remote.topics import RemoteTopics
from millstream.proxy.remote.transactions import Heartbeats, RemoteTransactions
from millstream.security.signature import Credentials
from millstream.security.users import AccessBook

__all__ = ["BEAT_INTERVAL_S", "GROUP_LIFETIME_S", "MAX_GROUPS", "RemoteBackend"]

_log = logging.getLogger(__name__)

BEAT_INTERVAL_S: Final = 5.0
"""Seconds after which brokers know a producer that is new here, at the latest."""

GROUP_LIFETIME_S: Final = 10.0
"""Seconds for which a group's settings are cached; brokers decide by those that they have."""

MAX_GROUPS: Final = 10_000
"""Groups whose settings are kept at most."""

_POINTS: Final = {QueuePoint.FIRST: RequestCode.GET_MIN_OFFSET, QueuePoint.LAST: RequestCode.GET_MAX_OFFSET}


class RemoteBackend:
    """The brokers of a cluster, found through `nameservers` (`host:port`, several separated by `;`).

    `start` before use, `close` after, all from one event loop. `credentials` are of a super user where the brokers have
    access control; `tls` is what their certificates are verified with. `clusters` are those of topics that other
    nameservers know.

    A broker's master may change its address. Its requests find the new one by routes that are asked for anew, until the
    caller's deadline or `failover_s` after the first failure. What is sent again after which failure:

    | call | no connection, or NOT_MASTER | connection closed with the request under way | TimedOut |
    |---|---|---|---|
    | send | again | never there: unbound messages go to another broker | never |
    | recall, dead_letter | again | never: it may be done, and a second one refused or stored twice | never |
    | pop | again | again: what was given out comes again after its invisible duration | never |
    | pull, find_offset, group_offset | again | again: they change nothing | never |
    | commit_offset, sync_lite_subscription | again | again: the same is set twice | never |
    | ack, change_invisible | again | again: a handle that is spent is refused | never |
    | end_transaction | again | again: the same end twice is no error | never |
    | group | again | again: it is read, or made once | never |
    """

    def __init__(
        self,
        nameservers: str,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        clusters: Sequence[ClusterRule] = (),
        failover_s: float = FAILOVER_S,
    ) -> None:
        self._clock = clock or SystemClock()
        self.hearing = BrokerCallbacks()
        """Where brokers' own requests go."""
        self._lanes = BrokerConnectionPool(nameservers, credentials=credentials, tls=tls, listener=self.hearing.answer)
        self._transactions = RemoteTransactions(self._lanes.demand_all)
        self.hearing.by_code[RequestCode.CHECK_TRANSACTION_STATE] = self._transactions.check
        self._routes = RouteCache(
            self._lanes.ask_nameserver, self._lanes.demand, self._clock, Clusters(nameservers, clusters), failover_s
        )
        self.masters = MasterWatch(self._routes)
        """Finds new masters while no request comes."""
        self._routes.on_moved.append(self._lanes.leave)
        self._lanes.on_doubt, self._lanes.on_answer = self.masters.doubt, self.masters.trust
        self.passage = RequestForwarder(self._lanes, self._routes)
        """The way of requests that are passed on as they are."""
        self._sender = RemoteSender(self._lanes, self._routes, self._clock)
        self._topics = RemoteTopics(self._lanes, self._routes, self._clock)
        self._popper = RemotePopper(self._lanes, self._routes, self._clock)
        self._groups: dict[str, tuple[float, GroupConfig]] = {}
        self._lite_clients: dict[str, None] = {}
        self._heartbeats = Heartbeats(self._lanes, self._routes, self._clock)
        self.told = ForwardedClients(self._lanes, self._routes, self._clock)
        """The clients here of which brokers know by name."""
        self._upkeep: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to refresh routes and to send heartbeats. Does not wait for nameservers or brokers to be there."""
        self._upkeep = [
            asyncio.create_task(_repeat(self._routes.refresh_all, REFRESH_INTERVAL_S), name="proxy-routes"),
            asyncio.create_task(_repeat(self._heartbeats.beat, BEAT_INTERVAL_S), name="proxy-heartbeats"),
            asyncio.create_task(_repeat(self.told.beat, BEAT_INTERVAL_S), name="proxy-clients"),
        ]

    async def close(self) -> None:
        """End the upkeep, give back what is on its way to nobody, and close the connections."""
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        self._upkeep.clear()
        await self.masters.close()
        await self._popper.close()
        await self._lanes.close()

    def announce(
        self, producers: Callable[[], Iterable[str]], groups: Callable[[], Iterable[str]] | None = None
    ) -> None:
        """Have brokers told that producers are here to be asked about their transactions: of topics, and of groups."""
        self._heartbeats.producers = producers
        if groups is not None:
            self._heartbeats.groups = groups

    def follow_access(self, book: AccessBook) -> AccessFollower:
        """What keeps a guard's users those of the brokers of the own cluster; the caller starts and closes it."""
        return AccessFollower(book, self._routes.own_masters, self._lanes.demand)

    async def route(self, topic: str) -> TopicRoute:
        """See `BrokerBackend`."""
        return (await self._routes.get(topic)).route

    async def group(self, name: str) -> GroupConfig:
        """See `BrokerBackend`. At most `GROUP_LIFETIME_S` old; older where no broker answers."""
        kept = self._groups.get(name)
        now_s = self._clock.monotonic_s()
        if kept is not None and kept[0] > now_s:
            return kept[1]
        try:
            ask = partial(self._ask_group, name)
            group = await (ask() if kept is not None else self._routes.repeating("", ask))
        except ConnectionFailed:
            if kept is None:
                raise
            return kept[1]
        self._groups.pop(name, None)
        if len(self._groups) >= MAX_GROUPS:
            del self._groups[next(iter(self._groups))]
        self._groups[name] = (now_s + GROUP_LIFETIME_S, group)
        return group

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """See `BrokerBackend`, and `RemoteSender.send` for what is one unit."""
        receipts = await self._sender.send(messages)
        self._transactions.note_sent(messages, receipts)
        return receipts

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """See `TraceSink`."""
        for message in messages:
            await self._sender.send([message])

    async def store_state(self, broker_name: str, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        """See `BrokerBackend`, and `RemoteTopics.store_state` for what is sent again."""
        return await self._topics.store_state(broker_name, messages)

    async def brokers(self) -> list[str]:
        """See `BrokerBackend`."""
        return await self._topics.brokers()

    async def declare_topic(self, config: TopicConfig) -> None:
        """See `BrokerBackend`, and `RemoteTopics.declare` for brokers that do not answer."""
        await self._topics.declare(config)

    async def remove_topic(self, name: str) -> None:
        """See `BrokerBackend`."""
        await self._topics.remove(name)

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        """See `BrokerBackend`."""
        handle = RecallHandle(topic, broker_name, 0, message_id).encode()
        ext = {"topic": topic, "recallHandle": handle, "bname": broker_name}
        await self._demand(broker_name, topic, RemotingCommand(RequestCode.RECALL_MESSAGE, ext), was_not_done)

    async def end_transaction(self, topic: str, transaction_id: str, resolution: Resolution) -> None:
        """See `BrokerBackend`. Any proxy can end what another one began."""

        async def end() -> None:
            try:
                known = await self._routes.get(topic)
            except NameRefused:
                words = f"No transaction {transaction_id[:80]!r} of the topic {topic[:200]!r} is known."
                raise MessageRefused("TRANSACTION_NOT_FOUND", words) from None
            await self._transactions.end(known, topic, transaction_id, resolution)

        await self._routes.repeating(topic, end)

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        """See `BrokerBackend`. Brokers do not hear whether a producer is asked: they ask again in their own time."""
        watchers = self._transactions.watchers
        watchers.append(ask)
        return lambda: watchers.remove(ask)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        """See `BrokerBackend`. What a cancelled pop has taken all the same is given back at once, uncounted."""
        return await self._popper.pop(broker_name, request)

    async def pull(self, broker_name: str, request: PullRequest) -> PullResult:
        """See `BrokerBackend`."""
        deadline_s = asyncio.get_running_loop().time() + request.wait_ms / 1000 if request.wait_ms > 0 else None
        pull = partial(self._pull, broker_name, request, deadline_s)
        return await self._routes.following(request.topic, pull, deadline_s=deadline_s)

    async def _pull(
        self, broker_name: str, request: PullRequest, deadline_s: float | None, known: KnownRoute
    ) -> PullResult:
        request = wait_until(request, deadline_s)
        try:
            address = known.address(broker_name, request.queue_id)
        except NameRefused as error:
            # The topic may have been made there since.
            self._routes.doubt(request.topic, error)
            raise
        command = requests.pull(
            QueueAddress(request.topic, broker_name, request.queue_id, address),
            request.queue_offset,
            group=request.group,
            max_messages=request.max_messages,
            max_bytes=request.max_bytes,
            wait_ms=request.wait_ms,
            filter=request.filter,
        )
        answer = await (await self._lanes.submit(address, command, request.wait_ms))
        status = requests.PULL_STATUSES.get(answer.code)
        if status is None:
            check_success(answer, address)
        batch = requests.pull_batch_of(answer, address)
        records = tuple(iterate_records(batch.buffer))
        return PullResult(batch.status, batch.next_offset, batch.min_offset, batch.max_offset, records)

    async def find_offset(self, broker_name: str, topic: str, queue_id: int, point: QueuePoint, value: int = 0) -> int:
        """See `BrokerBackend`."""
        ext = {"topic": topic, "queueId": str(queue_id), "bname": broker_name}
        if point is QueuePoint.OFFSET:
            first = await self.find_offset(broker_name, topic, queue_id, QueuePoint.FIRST)
            last = await self.find_offset(broker_name, topic, queue_id, QueuePoint.LAST)
            if not first <= value <= last:
                words = f"Queue {queue_id} of {topic!r} has the offsets {first} to {last}; {value} is outside."
                raise ConsumeRefused("ILLEGAL_OFFSET", words)
            return value
        if point is QueuePoint.TIME:
            ext |= {"timestamp": str(value), "boundaryType": "LOWER"}
        code = _POINTS.get(point, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
        answer = await self._demand(broker_name, topic, RemotingCommand(code, ext))
        return integer(answer.ext, "offset")

    async def group_offset(self, broker_name: str, group: str, topic: str, queue_id: int) -> int | None:
        """See `BrokerBackend`."""
        ext = {**_offset_fields(broker_name, group, topic, queue_id), "setZeroIfNotFound": "false"}

        async def ask(known: KnownRoute) -> int | None:
            address = known.address(broker_name, queue_id)
            answer = await self._lanes.ask(address, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, dict(ext)))
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            return integer(check_success(answer, address).ext, "offset")

        return await self._routes.following(topic, ask)

    async def progress(
        self, broker_name: str, group: str, topic: str, *, with_bytes: bool = False
    ) -> list[QueueProgress]:
        """See `BrokerBackend`."""
        ext = encode_progress_query(ProgressQuery(group, topic, with_bytes=with_bytes))
        answer = await self._demand(broker_name, topic, RemotingCommand(RequestCode.GET_CONSUME_STATS, ext))
        return [item.progress for item in decode_consume_statistics(answer.body) if item.progress.topic == topic]

    async def commit_offset(self, broker_name: str, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """See `BrokerBackend`."""
        ext = {**_offset_fields(broker_name, group, topic, queue_id), "commitOffset": str(queue_offset)}
        await self._demand(broker_name, topic, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))

    async def ack(self, request: AckRequest) -> None:
        """See `BrokerBackend`."""
        await self._demand_holder(request, RequestCode.ACK_MESSAGE, encode_ack(request))

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        """See `BrokerBackend`."""
        answer = await self._demand_holder(request, RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME, encode_change(request))
        return decode_change_answer(answer.ext, request.handle)

    async def release_deliveries(self, broker_name: str, group: str, topic: str) -> None:
        """See `BrokerBackend`. A second time does no harm."""
        ext = DeliveriesRelease(group, topic).encode()
        await self._demand(broker_name, topic, RemotingCommand(RequestCode.RELEASE_DELIVERIES, ext))

    async def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        """See `BrokerBackend`. Every broker of the topic is told; a lite topic's messages are in one of them."""
        if request.action in (LiteAction.PARTIAL_ADD, LiteAction.COMPLETE_ADD):
            self._lite_clients[request.client_id] = None
        return await self._routes.following(request.topic, partial(self._sync_lite, encode_lite_sync(request)))

    async def _sync_lite(self, body: bytes, known: KnownRoute) -> list[tuple[str, str]]:
        answers = await self._lanes.demand_all(
            known.addresses.values(), lambda: RemotingCommand(RequestCode.SYNC_LITE_SUBSCRIPTION, body=body)
        )
        lost: dict[tuple[str, str], None] = {}
        for address, answer in answers:
            for client_id, lite_topic in decode_lite_losses(_or_raise(answer, address).body):
                lost[client_id, lite_topic] = None
        return list(lost)

    async def leave_lite_topics(self, client_id: str) -> None:
        """See `BrokerBackend`. Nothing for a client that subscribed to none through this proxy."""
        if client_id not in self._lite_clients:
            return
        del self._lite_clients[client_id]
        ext = {"clientId": client_id}
        masters = [address for _, address in await self._routes.masters()]
        for address, answer in await self._lanes.demand_all(
            masters, lambda: RemotingCommand(RequestCode.LEAVE_LITE_TOPICS, dict(ext))
        ):
            if isinstance(answer, MillstreamError):
                _log.info("%s was not told that a client left its lite topics: %s", address, answer)

    async def dead_letter(self, request: AckRequest) -> None:
        """See `BrokerBackend`."""
        await self._demand_holder(request, RequestCode.BURY_DELIVERY, encode_ack(request), was_not_done)

    async def known_route(self, topic: str) -> KnownRoute:
        """The topic's route with the places of its brokers; TOPIC_NOT_FOUND."""
        return await self._routes.get(topic)

    def cached_route(self, topic: str) -> KnownRoute | None:
        """The same, if it is known already."""
        return self._routes.find(topic)

    # inside

    async def _demand_holder(
        self,
        request: AckRequest | ChangeInvisibleRequest,
        code: RequestCode,
        ext: dict[str, str],
        may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
    ) -> RemotingCommand:
        """Ask the broker that a delivery's handle names, wherever its master is."""

        async def ask(address: str) -> RemotingCommand:
            return await self._lanes.demand(address, RemotingCommand(code, dict(ext)))

        return await self.passage.at_holder(request.topic, request.handle.broker_name, ask, may_repeat)

    async def _demand(
        self,
        broker_name: str,
        topic: str,
        command: RemotingCommand,
        may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
    ) -> RemotingCommand:
        """Ask the topic's broker of that name, or the one to which the queue has moved."""
        queue_id = int(command.ext["queueId"]) if "queueId" in command.ext else None

        async def ask(known: KnownRoute) -> RemotingCommand:
            try:
                return await self._lanes.demand(known.address(broker_name, queue_id), command)
            except MillstreamError as error:
                self._routes.doubt(topic, error)
                raise

        return await self._routes.following(topic, ask, may_repeat)

    async def _ask_group(self, name: str) -> GroupConfig:
        """The group as the first master tells it that has it; where none has, the first one makes it."""
        failure: MillstreamError | None = None
        masters = await self._routes.masters()
        for ext in ({"group": name}, {"group": name, "create": "true"}):
            for _, address in masters:
                command = RemotingCommand(RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG, dict(ext))
                try:
                    return decode_group((await self._lanes.demand(address, command)).body)
                except (ConnectionFailed, NameRefused) as error:
                    failure = error if failure is None or isinstance(error, NameRefused) else failure
        raise failure or Unreachable("The nameservers know no broker.")


async def _repeat(act: Callable[[], Awaitable[None]], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except Exception:  # noqa: BLE001 - a task of the proxy's whole life must outlive one bad turn
            _log.exception("the proxy's upkeep failed; the next turn follows")


def _offset_fields(broker_name: str, group: str, topic: str, queue_id: int) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "bname": broker_name}


def _or_raise(answer: RemotingCommand | MillstreamError, address: str) -> RemotingCommand:
    if isinstance(answer, MillstreamError):
        raise answer
    return answer
