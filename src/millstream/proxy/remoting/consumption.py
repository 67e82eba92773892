"""Remoting push consumers over pop: a pull pops, a commit acknowledges."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millstream.broker.delivery.delay import LEVELS_S
from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.model.errors import MillstreamError
from millstream.model.filter import MessageFilter
from millstream.model.operations import PoppedMessage
from millstream.model.sql_filter import parse_filter
from millstream.protocol.batches import record_of
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer
from millstream.protocol.remoting.messages.message_requests import SendBack
from millstream.protocol.remoting.messages.offsets import decode_group_offset, decode_offset_query
from millstream.protocol.remoting.messages.pulls import decode_pull
from millstream.proxy.processor import MAX_RECEIVE_MESSAGES, Processor, ReceiveRequest
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remoting.clients import ProxyClientHandlers
from millstream.proxy.remoting.forwarding import Forwarding
from millstream.transport.remoting_connection import Connection

__all__ = ["MAX_HELD", "MAX_SUSPEND_MS", "ConsumptionHandlers", "UnackedDelivery", "UnackedQueue"]


@dataclass(frozen=True, slots=True)
class UnackedDelivery:
    """One delivery: the text of its receipt handle, where its message lies in the log of which broker, and which
    delivery it is."""

    handle: str
    log_offset: int
    attempt: int = 1
    broker_name: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Broker and log offset, which no other message has."""
        return self.broker_name, self.log_offset


class UnackedQueue:
    """One queue at one client."""

    def __init__(self) -> None:
        self._next: int | None = None
        # In order of offset: each one that enters is greater than all before it.
        self._held: dict[int, UnackedDelivery] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        """Deliveries that the client holds."""
        return len(self._held)

    def note_pull(self, offset: int) -> list[UnackedDelivery]:
        """The client asks for what is at the offset and behind; what it says by that it no longer has.

        A client that drops a queue, or loses an answer, comes back to an offset that it was given before.
        """
        lost = [one for own, one in self._held.items() if own >= offset]
        for one in lost:
            self._remove(one)
        self._next = offset
        return lost

    def give(self, queue_offset: int, delivery: UnackedDelivery) -> int:
        """The client gets a message of that offset in its queue; the offset under which it gets it."""
        assert self._next is not None, "nothing was pulled"
        former = self._offsets.get(delivery.place)
        if former is not None:
            # Its time was over, so the broker delivered it again; the former handle is worth nothing.
            self._remove(self._held[former])
        offset = max(queue_offset, self._next)
        self._held[offset] = delivery
        self._offsets[delivery.place] = offset
        self._next = offset + 1
        return offset

    @property
    def next_offset(self) -> int:
        """Where the client is to go on."""
        return self._next or 0

    def note_commit(self, offset: int) -> list[UnackedDelivery]:
        """The client has consumed all below the offset: what is to be acknowledged."""
        done = []
        for own, one in self._held.items():
            if own >= offset:
                break
            done.append(one)
        for one in done:
            self._remove(one)
        return done

    def note_sent_back(self, log_offset: int, broker_name: str = "") -> UnackedDelivery | None:
        """The client could not consume the message: its delivery, None if the client does not hold it.

        Of a queue that moved, a client names the broker that has it now, and the message may lie at another one.
        """
        offset = self._offsets.get((broker_name, log_offset))
        if offset is None:
            offset = next((own for place, own in self._offsets.items() if place[1] == log_offset), None)
        if offset is None:
            return None
        one = self._held[offset]
        self._remove(one)
        return one

    def restore(self, deliveries: Iterable[UnackedDelivery]) -> None:
        """What was to be acknowledged or sent back could not be: the next commit is to try again."""
        first = min(self._held, default=self.next_offset)
        before = {}
        for number, one in enumerate(reversed(list(deliveries))):
            offset = first - 1 - number
            before[offset] = one
            self._offsets[one.place] = offset
        self._held = {offset: before[offset] for offset in sorted(before)} | self._held

    def drop(self) -> list[UnackedDelivery]:
        """The client is gone: all that it held."""
        held = list(self._held.values())
        self._held.clear()
        self._offsets.clear()
        return held

    def _remove(self, one: UnackedDelivery) -> None:
        del self._held[self._offsets.pop(one.place)]


_log = logging.getLogger(__name__)

MAX_HELD: Final = 4096
"""Deliveries of one queue that a client may hold; at the limit it gets nothing new of it. RocketMQ's clients stop
by themselves at 1,000."""

MAX_SUSPEND_MS: Final = 60_000
"""Milliseconds that a pull waits at most."""

_FULL_PAUSE_S: Final = 1.0
_ACKS_AT_ONCE: Final = 64
_COMMIT_OFFSET, _SUBSCRIPTION = 1, 4


@dataclass(frozen=True, slots=True)
class _Place:
    """A queue as a member of a group reads it. In a static topic it is no broker's: the name is blank."""

    group: str
    broker_name: str
    topic: str
    queue_id: int


@dataclass(slots=True)
class _Reading:
    held: UnackedQueue = field(default_factory=UnackedQueue)
    has_begun: bool = False
    under_way: asyncio.Task[list[PoppedMessage]] | None = None


@dataclass(slots=True)
class _Client:
    """What the clients on one connection read. Their deliveries are kept under a name that is the connection's."""

    name: str
    readings: dict[_Place, _Reading] = field(default_factory=dict)
    works: set[asyncio.Task[None]] = field(default_factory=set)


class ConsumptionHandlers:
    """Codes 11, 361, 15 and 36."""

    def __init__(
        self, processor: Processor, backend: RemoteBackend, clients: ProxyClientHandlers, forwarding: Forwarding
    ) -> None:
        self._processor = processor
        self._backend = backend
        self._clients = clients
        self._forwarding = forwarding
        self._readers: dict[Connection, _Client] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pull(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Messages as the broker's own answer to a pull would hold them."""
        call = decode_pull(command.ext)
        group, topic, offset = call.group, call.topic, call.queue_offset
        if not self._clients.is_served_by_pops(group, connection):
            self._complete(command, connection, group, topic)
            return await self._forwarding.pull(command, connection)
        wait_ms = min(call.wait_ms, MAX_SUSPEND_MS)
        if topic.startswith(RETRY_PREFIX):
            # What is to be consumed again comes from the group's topics, and what waits here comes with them.
            await asyncio.sleep(wait_ms / 1000)
            return _make_pull_answer(command, offset)
        wanted = self._subscription_of(group, topic) if call.filter is None else call.filter
        if wanted is None:
            remark = f"Group {group} has no subscription to topic {topic}."
            return command.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark=remark)
        place = _Place(group, await self._broker_name(command.ext, topic), topic, call.queue_id)
        client, reading = self._reading(connection, place)
        if call.commit_offset is not None:
            await self._commit(place, reading, call.commit_offset)
        await self._begin(client, place, reading, offset)
        if len(reading.held) >= MAX_HELD:
            await asyncio.sleep(min(wait_ms / 1000, _FULL_PAUSE_S))
            return _make_pull_answer(command, offset)
        wish = ReceiveRequest(
            client_id=client.name,
            group=group,
            topic=topic,
            broker_name=place.broker_name,
            invisible_ms=None,
            queue_id=place.queue_id,
            max_messages=min(call.max_messages, MAX_RECEIVE_MESSAGES),
            filter=wanted,
            wait_ms=wait_ms,
        )
        self._processor.note_alive(client.name)
        reading.under_way = asyncio.create_task(self._processor.receive(wish))
        try:
            popped = await reading.under_way
        finally:
            reading.under_way = None
        if not connection.is_open:
            self._processor.give_back(wish, popped, uncounted=True)
        return self._answer(command, reading, offset, popped)

    def commit(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand] | RemotingCommand:
        """Acknowledge what the client has consumed. It may leave and close its connection right after."""
        call, broker_name = decode_group_offset(command.ext), command.ext.get("bname", "")
        group, offset = call.group, call.queue_offset
        found = [
            (place, reading)
            for place, reading in self._places(connection, group, broker_name)
            if (place.topic, place.queue_id) == (call.topic, call.queue_id)
        ]
        reads_itself = self._clients.commits_by_offset(group, connection)
        if len(found) == 1:
            # Begun in this turn: what the client says next, that it leaves, must not come first.
            work = self._begin_work(connection, self._commit(*found[0], offset))
            if not reads_itself:
                return self._after(work, command)
        # A commit at the broker consumes what others hold as well: only who reads by offset there may do that.
        return self._forward(command, connection) if reads_itself else command.response()

    async def offset(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Where the group is in a queue; in its retry topic, which need not be there, at the beginning."""
        call = decode_offset_query(command.ext)
        if call.topic.startswith(RETRY_PREFIX) and self._clients.is_served_by_pops(call.group, connection):
            return command.response(ext={"offset": "0"})
        return await self._forwarding.of_topic(command, connection)

    async def send_back(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Let a message that could not be consumed be delivered again later, or (a negative level) be a dead letter."""
        call, broker_name = SendBack.decode(command.ext), command.ext.get("bname", "")
        for place, reading in self._places(connection, call.group, broker_name):
            held = reading.held.note_sent_back(call.log_offset, broker_name)
            if held is not None:
                return await self._after(
                    self._begin_work(connection, self._return(place, held, call.delay_level)), command
                )
        return await self._forwarding.to_broker(command, call.topic or RETRY_PREFIX + call.group)

    def _begin_work(self, connection: Connection, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that the end of its connection does not end."""
        task = asyncio.get_running_loop().create_task(work)
        client = self._readers.get(connection)
        if client is not None:
            client.works.add(task)
            task.add_done_callback(client.works.discard)
        return task

    def _forward(self, command: RemotingCommand, connection: Connection) -> asyncio.Future[RemotingCommand]:
        """The answer of the broker, which gets the request though its connection ends at once."""
        task = asyncio.get_running_loop().create_task(self._forwarding.of_topic(command, connection))
        self._tasks.add(task)
        task.add_done_callback(self._note_forwarded)
        return asyncio.shield(task)

    def _note_forwarded(self, task: asyncio.Task[RemotingCommand]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("A commit could not be handed on: %s", error)

    async def _after(self, work: asyncio.Task[None], command: RemotingCommand) -> RemotingCommand:
        await asyncio.shield(work)
        return command.response()

    def note_alive(self, connection: Connection) -> None:
        """The client said something: what it holds stays its own."""
        client = self._readers.get(connection)
        if client is not None:
            self._processor.note_alive(client.name)

    async def close(self) -> None:
        """Wait for what is on its way back to the brokers."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _subscription_of(self, group: str, topic: str) -> MessageFilter | None:
        """What the group's members said in their heartbeats that they want of the topic; None where nobody did."""
        found = self._clients.consumers.subscription(group, topic)
        return None if found is None else parse_filter(found.expression_type or "", found.sub_string or "")

    def _complete(self, command: RemotingCommand, connection: Connection, group: str, topic: str) -> None:
        """Say in a pull what the client said in its heartbeats, which brokers do not hear."""
        flags = integer(command.ext, "sysFlag")
        found = self._clients.consumers.subscription(group, topic)
        if not self._clients.reads_by_offset(group, connection):
            flags &= ~_COMMIT_OFFSET
        if not flags & _SUBSCRIPTION and found is not None:
            flags |= _SUBSCRIPTION
            command.ext["subscription"] = found.sub_string or "*"
            command.ext["expressionType"] = found.expression_type or "TAG"
        command.ext["sysFlag"] = str(flags)

    async def _broker_name(self, ext: dict[str, str], topic: str) -> str:
        """The broker that the client means: the only one, where it does not say; blank where queues move."""
        name = ext.get("bname") or ext.get("brokerName") or ""
        known = await self._backend.known_route(topic)
        if known.is_static:
            return ""
        known.address(name)
        return name or next(iter(known.addresses))

    def _reading(self, connection: Connection, place: _Place) -> tuple[_Client, _Reading]:
        client = self._readers.get(connection)
        if client is None:
            name = f"remoting@{connection.peer.host}:{connection.peer.port}@{id(connection):x}"
            client = self._readers[connection] = _Client(name)
            connection.on_close.append(self._note_closed)
        return client, client.readings.setdefault(place, _Reading())

    async def _begin(self, client: _Client, place: _Place, reading: _Reading, offset: int) -> None:
        """Take over from where the client reads now; what it does not have any more is for others at once."""
        if reading.under_way is not None:
            reading.under_way.cancel()
        lost = reading.held.note_pull(offset)
        if lost:
            await self._all(self._release(place, one) for one in lost)
        if reading.has_begun:
            return
        reading.has_begun = True
        where = (place.broker_name, place.group, place.topic, place.queue_id)
        if offset > 0 and await self._backend.group_offset(*where) is None:
            # A new group begins where its first client says.
            await self._backend.commit_offset(*where, offset)

    def _answer(
        self, command: RemotingCommand, reading: _Reading, offset: int, popped: Iterable[PoppedMessage]
    ) -> RemotingCommand:
        records = []
        for one in popped:
            message = one.message
            handle = one.handle
            delivery = UnackedDelivery(handle.encode(), message.log_offset, one.delivery_attempt, handle.broker_name)
            given = reading.held.give(message.queue_offset, delivery)
            shown = replace(message, queue_offset=given, reconsume_times=one.delivery_attempt - 1)
            records.append(record_of(shown))
        return _make_pull_answer(command, reading.held.next_offset if records else offset, b"".join(records))

    async def _commit(self, place: _Place, reading: _Reading, offset: int) -> None:
        done = reading.held.note_commit(offset)
        failed: list[UnackedDelivery] = []

        async def ack(one: UnackedDelivery) -> None:
            try:
                await self._processor.ack(place.group, place.topic, one.handle)
            except MillstreamError as error:
                if error.name == "INVALID_RECEIPT_HANDLE":
                    _log.info("A message of %s was delivered to another consumer meanwhile: %s", place.topic, error)
                else:
                    _log.warning("A message of %s is not acknowledged yet: %s", place.topic, error)
                    failed.append(one)

        await self._all(ack(one) for one in done)
        if failed:
            reading.held.restore(one for one in done if one in failed)

    async def _return(self, place: _Place, held: UnackedDelivery, level: int) -> None:
        try:
            if level < 0:
                await self._processor.dead_letter(place.group, place.topic, held.handle)
                return
            if level:
                delay_ms = LEVELS_S[min(level, len(LEVELS_S)) - 1] * 1000
            else:
                delay_ms = (await self._processor.group(place.group)).backoff_ms(held.attempt)
            await self._processor.change_invisible(place.group, place.topic, held.handle, delay_ms)
        except MillstreamError as error:
            if error.name != "INVALID_RECEIPT_HANDLE":
                raise
            _log.info("A message of %s that is sent back was delivered again already: %s", place.topic, error)

    async def _release(self, place: _Place, one: UnackedDelivery) -> None:
        try:
            await self._processor.change_invisible(place.group, place.topic, one.handle, 0, suspend=True)
        except MillstreamError as error:
            _log.info("A message of %s comes again when its time is over: %s", place.topic, error)

    async def _all(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do all, some of them at the same time."""
        waiting = list(works)
        for start in range(0, len(waiting), _ACKS_AT_ONCE):
            await asyncio.gather(*waiting[start : start + _ACKS_AT_ONCE])

    def _places(self, connection: Connection, group: str, broker_name: str) -> list[tuple[_Place, _Reading]]:
        client = self._readers.get(connection)
        return [
            (place, reading)
            for place, reading in (client.readings.items() if client is not None else ())
            if place.group == group and ("" in (broker_name, place.broker_name) or broker_name == place.broker_name)
        ]

    async def _end(self, client: _Client) -> None:
        """Let others have what the client held, but for what it has just committed."""
        if client.works:
            await asyncio.wait(client.works)
        await self._processor.terminate(client.name)

    def _note_closed(self, connection: Connection) -> None:
        client = self._readers.pop(connection, None)
        if client is None:
            return
        for reading in client.readings.values():
            if reading.under_way is not None:
                reading.under_way.cancel()
        task = asyncio.get_running_loop().create_task(self._end(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _make_pull_answer(command: RemotingCommand, next_offset: int, body: bytes = b"") -> RemotingCommand:
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": "0",
        "maxOffset": str(next_offset),
    }
    return command.response(ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND, ext=ext, body=body)
