"""The common layer of all protocol adapters over one backend: checks, clients, and renewal of deliveries."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock, SystemClock
from millstream.model.commands import (
    NotifyUnsubscribeLite,
    PrintThreadStackTrace,
    ReconnectEndpoints,
    RecoverOrphanedTransaction,
    ServerCommand,
    VerifyMessage,
    VerifyOutcome,
)
from millstream.model.errors import ConsumeRefused, MessageRefused, MillstreamError, NameRefused
from millstream.model.filter import ALL, MessageFilter
from millstream.model.group import GroupConfig, check_group_name, is_tool_group
from millstream.model.handles import RecallHandle, ReceiptHandle
from millstream.model.lite import LiteSync
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    Resolution,
    SendReceipt,
)
from millstream.model.properties import PRODUCER_GROUP
from millstream.model.topic import check_topic_name, is_system_topic
from millstream.proxy.backend import BrokerBackend, TopicRoute
from millstream.proxy.budget import Answers
from millstream.proxy.client_commands import Outbox, Outboxes, PendingCommands
from millstream.proxy.clients import ClientTable
from millstream.proxy.feed import TopicFeed
from millstream.proxy.pulls import Pulls
from millstream.proxy.renewal import RENEW_FOR_MS, RenewalTable, Renewer, TrackedDelivery
from millstream.proxy.throttle import Caller, Throttle
from millstream.proxy.tracer import Tracer, trace_backend
from millstream.telemetry.counters import RpcLatency

__all__ = ["MAX_INVISIBLE_MS", "MAX_RECEIVE_MESSAGES", "MIN_RECEIVE_INVISIBLE_MS", "Processor", "ReceiveRequest"]


MAX_RECEIVE_MESSAGES = 32
"""Messages of one receive at most; larger wishes are cut."""


@dataclass(slots=True)
class ReceiveRequest:
    """A wish for messages. `invisible_ms` None asks the proxy to keep them out of sight while the client lives."""

    client_id: str
    group: str
    topic: str
    broker_name: str
    invisible_ms: int | None
    queue_id: int | None = None
    max_messages: int = MAX_RECEIVE_MESSAGES
    filter: MessageFilter = ALL
    wait_ms: int = 0
    attempt_id: str = ""


_log = logging.getLogger(__name__)

MIN_RECEIVE_INVISIBLE_MS = 10_000
"""Invisible duration of a receive at least; a later change may go down to 0."""

MAX_INVISIBLE_MS = 12 * 60 * 60 * 1000
"""Invisible duration at most."""

MAX_WAITING_RECEIVES = 50_000
"""Receives that wait for messages at the same time at most."""

SWEEP_INTERVAL_S = 1.0
"""How often the proxy looks for renewals that are due and clients that are gone."""

CLOSE_TIMEOUT_S = 2.0
"""How long `close` waits for deliveries on their way back."""


RECONNECT_TIMEOUT_S = 0.5
"""How long a stop waits until the clients have got the command to reconnect."""

_RECONNECT_POLL_S = 0.01

_Outcome = TypeVar("_Outcome")


class Processor:
    """The proxy's operations. All methods are called from one event loop; `start` before use, `close` after.

    Every method that a client's request reaches counts as a sign of that client's life through `clients`.
    """

    def __init__(self, backend: BrokerBackend, *, clock: Clock | None = None, tracer: Tracer | None = None) -> None:
        self._clock = clock or SystemClock()
        self._tracer = tracer
        self._backend = backend if tracer is None else trace_backend(backend, tracer, self._clock)
        self._waiting: set[asyncio.Task[Any]] = set()
        self._ends_waits = False
        self._turn = 0
        self._unwatch: Callable[[], None] = _nothing
        self._sweeping: asyncio.Task[None] | None = None
        self._releases: set[asyncio.Task[None]] = set()
        self.answers = Answers(self._clock)
        self.clients = ClientTable()
        self.throttle = Throttle()
        """How much clients may send and receive; the protocols' adapters ask it. Set before `start`."""
        self.latency = RpcLatency()
        """How long the clients' calls took; the protocols' adapters note it."""
        self.pulls = Pulls(backend)
        self.feed = TopicFeed(backend, clock=self._clock)
        """What sessions of all protocols follow topics by."""
        self.renewer = Renewer(backend, self._clock, RenewalTable())
        self.outboxes = Outboxes(self._client_left)
        self._questions = PendingCommands(self.outboxes)

    @property
    def is_traced(self) -> bool:
        """Whether what becomes of messages is noted."""
        return self._tracer is not None

    @property
    def backend(self) -> BrokerBackend:
        """What the processor calls; what becomes of messages is noted there, where it is."""
        return self._backend

    async def start(self) -> None:
        """Begin to renew deliveries and to look for clients that went."""
        self._unwatch = self._backend.watch_transactions(self._ask_a_producer)
        self._sweeping = asyncio.create_task(self._sweep_forever(), name="proxy-sweep")

    async def close(self) -> None:
        """Stop the sweeps and finish giving back what could not be handed over.

        Other deliveries become visible when their time ends.
        """
        self._unwatch()
        self._unwatch = _nothing
        await self.feed.close()
        if self._releases:
            await asyncio.wait(self._releases, timeout=CLOSE_TIMEOUT_S)
        tasks = [*self._releases, *([self._sweeping] if self._sweeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._sweeping = None

    def note_alive(self, client_id: str, owner: str = "") -> None:
        """A sign of life of a client, which belongs to the user `owner` from its first one on."""
        self.clients.note_alive(client_id, self._clock.monotonic_s(), owner)

    def declare(self, client_id: str, kind: str, *, group: str = "", topics: Iterable[str] = ()) -> None:
        """What a client says that it is. Raises ILLEGAL_GROUP, ILLEGAL_TOPIC, TOO_MANY_REQUESTS."""
        if group:
            check_group_name(group)
        named = frozenset(topics)
        for topic in named:
            check_topic_name(topic)
        record = self.clients.note_alive(client_id, self._clock.monotonic_s())
        self.clients.declare(record, kind, named, group)

    def stream_opened(self, client_id: str) -> Outbox:
        """A client opened a stream that lives as long as it does; what is to be said on it comes by the outbox."""
        self.clients.stream_opened(client_id, self._clock.monotonic_s())
        return self.outboxes.open(client_id)

    def stream_closed(self, client_id: str, outbox: Outbox) -> None:
        """Such a stream ended; unless the client is heard of again, its deliveries are handed to others."""
        self.clients.stream_closed(client_id, self._clock.monotonic_s())
        self.outboxes.close(client_id, outbox)

    def tell(self, client_id: str, command: ServerCommand) -> bool:
        """Whether the command will be sent to the client. False: it has no open stream, or does not read it.

        A stream that breaks at the wrong moment can still lose it, and may bring it twice.
        """
        return self.outboxes.tell(client_id, command)

    async def thread_stack_trace(self, client_id: str, timeout_s: float) -> str:
        """What the threads of a client do, in its own words.

        Raises CLIENT_NOT_CONNECTED, TIMED_OUT, UNSUPPORTED_FEATURE from clients that do not tell, TOO_MANY_REQUESTS.
        """
        return str(await self._questions.ask(client_id, PrintThreadStackTrace, timeout_s))

    async def verify_message(self, client_id: str, message: StoredMessage, timeout_s: float) -> VerifyOutcome:
        """What a consumer makes of a message that it is given as a trial. Raises as `thread_stack_trace`."""
        outcome = await self._questions.ask(client_id, lambda nonce: VerifyMessage(nonce, message), timeout_s)
        assert isinstance(outcome, VerifyOutcome)
        return outcome

    def note_answer(self, client_id: str, nonce: str, answer: object | MillstreamError) -> None:
        """A client answers a question; an error is its refusal."""
        self._questions.note_answer(client_id, nonce, answer)

    async def reconnect_all(self) -> None:
        """Tell all clients to connect again; returns when they were told, or after RECONNECT_TIMEOUT_S."""
        for client_id in self.outboxes.client_ids():
            self.outboxes.tell(client_id, ReconnectEndpoints(uuid.uuid4().hex))
        with suppress(TimeoutError):
            async with asyncio.timeout(RECONNECT_TIMEOUT_S):
                while self.outboxes.waiting:  # noqa: ASYNC110 - a stop happens once; no event is worth keeping for it
                    await asyncio.sleep(_RECONNECT_POLL_S)

    def _client_left(self, client_id: str) -> None:
        self._questions.client_left(client_id)

    async def terminate(self, client_id: str, group: str | None = None) -> None:
        """The client says that it ends: its deliveries can be received by others in a second."""
        self.clients.remove(client_id)
        await self._backend.leave_lite_topics(client_id)
        await self.renewer.release_client(client_id, group)

    async def route(self, topic: str) -> TopicRoute:
        """Where the topic's queues lie."""
        _check_user_topic(topic)
        return await self._backend.route(topic)

    def group(self, name: str) -> Awaitable[GroupConfig]:
        """The group's settings. Raises ILLEGAL_GROUP for the names of tools as well: nobody consumes under them."""
        check_group_name(name)
        if is_tool_group(name):
            raise NameRefused("ILLEGAL_GROUP", f"{name!r} is one of the system's own groups.")
        return self._backend.group(name)

    def send(self, messages: Sequence[OutgoingMessage]) -> Awaitable[list[SendReceipt]]:
        """Store messages of one topic, all or none; one receipt each."""
        topics = len({message.topic for message in messages}) if len(messages) != 1 else 1
        if topics != 1:
            raise MessageRefused("MESSAGE_MALFORMED", f"A request holds messages of one topic, not of {topics}.")
        _check_user_topic(messages[0].topic)
        return self._backend.send(messages)

    async def end_transaction(
        self, topic: str, message_id: str, transaction_id: str, resolution: Resolution, *, was_asked: bool = False
    ) -> None:
        """Commit or roll back the transaction of a message; UNKNOWN leaves it pending. `was_asked`: by this server.

        Raises ILLEGAL_TRANSACTION_ID, TRANSACTION_NOT_FOUND, TRANSACTION_ENDED.
        """
        _check_user_topic(topic)
        # The message's own id is the transaction's: every proxy knows it, and so does the broker.
        if not transaction_id.strip() or message_id not in ("", transaction_id):
            raise MessageRefused(
                "ILLEGAL_TRANSACTION_ID",
                f"{transaction_id[:80]!r} is no transaction id of the message {message_id[:80]!r}.",
            )
        await self._backend.end_transaction(topic, transaction_id, resolution)
        if self._tracer is not None:
            self._tracer.note_end_of_transaction(topic, transaction_id, resolution, was_asked=was_asked)

    def _ask_a_producer(self, question: RecoverOrphanedTransaction) -> bool:
        """Whether one of the producers of the topic will be asked; they take turns.

        Of those that speak gRPC the topic is the producer group; a message of another group is not theirs.
        """
        message = question.message
        if message.properties.get(PRODUCER_GROUP, message.topic) != message.topic:
            return False
        self._turn += 1
        producers = self.clients.producers(question.message.topic)
        start = self._turn % max(len(producers), 1)
        return any(self.outboxes.tell(producer, question) for producer in producers[start:] + producers[:start])

    async def recall(self, topic: str, text: str) -> str:
        """Take a delayed message back by its recall handle; its message id.

        Raises ILLEGAL_RECALL_HANDLE, TOPIC_NOT_FOUND, MESSAGE_NOT_FOUND.
        """
        _check_user_topic(topic)
        handle = RecallHandle.decode_for(topic, text)
        await self._backend.recall(handle.broker_name, topic, handle.message_id)
        return handle.message_id

    async def receive(self, wish: ReceiveRequest) -> list[PoppedMessage]:
        """Messages for the wish; empty after its waiting time with nothing. Cancelling takes none."""
        self.check_wish(wish)
        max_messages = min(max(wish.max_messages, 1), MAX_RECEIVE_MESSAGES)
        self.check_room(wish.client_id)
        if wish.invisible_ms is None and not self.renewer.table.has_room(max_messages):
            raise ConsumeRefused("TOO_MANY_REQUESTS", "The limit of deliveries under renewal is reached.")
        # By position: names cost as much as the values. A push consumer asks every broker; any other would wait at one
        # while its messages are at another.
        request = PopRequest(
            wish.group,
            wish.topic,
            RENEW_FOR_MS if wish.invisible_ms is None else wish.invisible_ms,
            wish.queue_id,
            max_messages,
            wish.filter,
            0 if self._ends_waits else wish.wait_ms,
            wish.attempt_id,
            wish.client_id,
            (),
            wish.invisible_ms is not None and wish.queue_id is None,
        )
        popped = await self._pop(wish.broker_name, request)
        if wish.invisible_ms is None:
            self._track(wish, popped)
        if popped and self.throttle.has_rules:
            caller = Caller(wish.client_id, wish.group, self.clients.owner(wish.client_id))
            size_bytes = sum(len(one.message.body) for one in popped)
            self.throttle.charge(caller, size_bytes, self._clock.monotonic_s())
        return popped

    def check_wish(self, wish: ReceiveRequest) -> None:
        """Refuse a wish that can never be met: ILLEGAL_TOPIC, ILLEGAL_GROUP, ILLEGAL_INVISIBLE_TIME."""
        check_topic_name(wish.topic)
        check_group_name(wish.group)
        if wish.invisible_ms is not None and not MIN_RECEIVE_INVISIBLE_MS <= wish.invisible_ms <= MAX_INVISIBLE_MS:
            raise _illegal_invisible_time(wish.invisible_ms, MIN_RECEIVE_INVISIBLE_MS)

    def check_room(self, client_id: str) -> None:
        """TOO_MANY_REQUESTS where a receive of the client is over a limit."""
        if len(self._waiting) >= MAX_WAITING_RECEIVES:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{len(self._waiting)} receives wait, which is the limit.")
        self.answers.check(client_id)

    def give_back(self, wish: ReceiveRequest, popped: Sequence[PoppedMessage], *, uncounted: bool = False) -> None:
        """Messages could not be handed to the client: let others receive them in a second. Does not wait.

        `uncounted`: nothing of them was written, so that it was no attempt.
        """
        self._release_later(self._give_back(wish, popped, uncounted=uncounted))

    def release(self, group: str, topic: str, handles: Sequence[ReceiptHandle]) -> None:
        """The client that holds deliveries has gone: let others receive them in a second. Does not wait."""
        self._release_later(self.renewer.release([(group, topic, handle) for handle in handles]))

    def end_waits(self) -> None:
        """Answer the receives that wait as if their time were over, and later ones at once: the server stops."""
        self._ends_waits = True
        for task in self._waiting:
            task.cancel()

    async def ack(self, group: str, topic: str, handle: str, *, in_time: bool = False) -> None:
        """Acknowledge the delivery that the handle's text names; an old text of a renewed delivery is as good.

        `in_time`: here and of `change_invisible`, see `AckRequest`.
        """
        await self._settle(group, handle, lambda current: self._backend.ack(AckRequest(group, topic, current, in_time)))

    def ack_at_once(self, delivery: DeliveryService, group: str, topic: str, handle: str) -> None:
        """As `ack` with `in_time`, at a broker of this process, for a delivery whose renewal is not under way."""
        tracked = self.renewer.table.remove((group, handle))
        try:
            current = ReceiptHandle.decode(handle) if tracked is None else tracked.handle
            delivery.ack(AckRequest(group, topic, current, in_time=True))
        except BaseException as error:
            self._keep_tracking(tracked, error)
            raise

    async def change_invisible(
        self,
        group: str,
        topic: str,
        handle: str,
        invisible_ms: int,
        *,
        suspend: bool = False,
        in_time: bool = False,
    ) -> str:
        """Make a delivery visible `invisible_ms` (0 s to 12 h) from now and stop its renewal; the new handle's text.

        `suspend`: the delivery does not count as an attempt.
        """
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise _illegal_invisible_time(invisible_ms, 0)
        was_renewed = self.renewer.table.find((group, handle)) is not None

        async def change(current: ReceiptHandle) -> ReceiptHandle:
            request = ChangeInvisibleRequest(group, topic, current, invisible_ms, suspend, in_time=in_time)
            changed = await self._backend.change_invisible(request)
            if self._tracer is not None and was_renewed and not suspend:
                # So says a push consumer that it failed; others may only need more time.
                self._tracer.note_consumption(group, topic, current, succeeded=False)
            return changed

        return (await self._settle(group, handle, change)).encode()

    async def dead_letter(self, group: str, topic: str, handle: str) -> None:
        """Move a delivery to the group's dead-letter topic and acknowledge it."""
        await self._settle(group, handle, lambda current: self._backend.dead_letter(AckRequest(group, topic, current)))

    async def sync_lite_subscription(self, request: LiteSync) -> None:
        """Take over which lite topics a client reads. Who lost one by it, or could not get it, is told."""
        check_topic_name(request.topic)
        check_group_name(request.group)
        for client_id, lite_topic in await self._backend.sync_lite_subscription(request):
            self.tell(client_id, NotifyUnsubscribeLite(lite_topic))

    async def sweep(self) -> None:
        """Renew what is due and release what clients that went left behind."""
        for client_id in self.clients.take_gone(self._clock.monotonic_s()):
            await self._backend.leave_lite_topics(client_id)
            await self.renewer.release_client(client_id)
        await self.renewer.sweep()

    async def _pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        try:
            return await self._backend.pop(broker_name, request)
        except asyncio.CancelledError:
            if not self._ends_waits or task.uncancel() > 0:
                raise
            return []
        finally:
            self._waiting.discard(task)
            # A cancellation knows this call, and its task the cancellation: all that they know would wait for the
            # search for such circles.
            del task

    def _release_later(self, releasing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(releasing)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def _track(self, wish: ReceiveRequest, popped: Iterable[PoppedMessage]) -> None:
        now_ms = self.renewer.now_ms()
        if popped:
            # Without a record of its client a delivery would be renewed to its limit, and the client may have gone
            # and been forgotten while this receive waited.
            self.note_alive(wish.client_id)
        for delivery in popped:
            handle, attempt = delivery.handle, delivery.delivery_attempt
            text = handle.encode()
            self.renewer.track(TrackedDelivery(wish.client_id, wish.group, wish.topic, text, handle, attempt, now_ms))

    async def _give_back(self, wish: ReceiveRequest, popped: Iterable[PoppedMessage], *, uncounted: bool) -> None:
        for delivery in popped:
            tracked = await self.renewer.take(wish.group, delivery.handle.encode())
            handle = tracked.handle if tracked else delivery.handle
            await self.renewer.release([(wish.group, wish.topic, handle)], uncounted=uncounted)

    async def _settle(
        self, group: str, handle: str, settle: Callable[[ReceiptHandle], Awaitable[_Outcome]]
    ) -> _Outcome:
        """What `settle` makes of the handle that the broker takes now; where it succeeds, renewal is over."""
        tracked = await self.renewer.take(group, handle)
        try:
            return await settle(tracked.handle if tracked else ReceiptHandle.decode(handle))
        except BaseException as error:
            self._keep_tracking(tracked, error)
            raise

    def _keep_tracking(self, tracked: TrackedDelivery | None, error: BaseException) -> None:
        refused = isinstance(error, MillstreamError) and error.name == "INVALID_RECEIPT_HANDLE"
        if tracked is not None and not refused:
            # The client will try again with the same old handle: the way to the latest one must stay known.
            self.renewer.table.add(tracked)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            try:
                await self.sweep()
            except Exception:  # noqa: BLE001 - a task of the proxy's whole life must outlive one bad turn
                _log.exception("a sweep of the proxy failed; the next one follows")


def _nothing() -> None:
    """Stands for the end of a watch that has not begun."""


def _check_user_topic(name: str) -> None:
    check_topic_name(name)
    if is_system_topic(name):
        raise NameRefused("ILLEGAL_TOPIC", f"{name!r} is one of the system's own topics.")


def _illegal_invisible_time(invisible_ms: int, least_ms: int) -> ConsumeRefused:
    return ConsumeRefused(
        "ILLEGAL_INVISIBLE_TIME",
        f"The invisible time of {invisible_ms} ms is outside of {least_ms} to {MAX_INVISIBLE_MS} ms.",
    )
