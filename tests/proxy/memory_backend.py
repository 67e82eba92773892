"""A backend that keeps its messages in memory and can be told to fail: the smallest thing the proxy can stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from millstream.broker.delivery.admission import check_messages
from millstream.model import properties
from millstream.model.clock import Clock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import ConsumeRefused, MillstreamError, NameRefused
from millstream.model.group import GroupConfig
from millstream.model.handles import ReceiptHandle
from millstream.model.lite import LiteSync
from millstream.model.message import Address, OutgoingMessage, StoredMessage
from millstream.model.operations import (
    AckRequest,
    ChangeInvisibleRequest,
    PoppedMessage,
    PopRequest,
    Resolution,
    SendReceipt,
)
from millstream.model.topic import TopicConfig
from millstream.proxy.backend import RouteQueue, TopicRoute

BROKER = "broker-a"
LOOK_AGAIN_S = 0.05


@dataclass
class Progress:
    """One message as one group sees it."""

    visible_ms: int = 0
    attempts: int = 0
    handle: ReceiptHandle | None = None
    acked: bool = False


@dataclass
class MemoryBackend:
    """One queue order per topic, message by message. `failure` is raised by every operation while it is set."""

    clock: Clock
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    log: list[StoredMessage] = field(default_factory=list)
    failure: Exception | None = None
    pops: list[PopRequest] = field(default_factory=list)
    changes: list[ChangeInvisibleRequest] = field(default_factory=list)
    dead: list[AckRequest] = field(default_factory=list)
    ended: list[tuple[str, str, Resolution]] = field(default_factory=list)
    watchers: list[Callable[[RecoverOrphanedTransaction], bool]] = field(default_factory=list)
    lite_syncs: list[LiteSync] = field(default_factory=list)
    lite_lost: list[tuple[str, str]] = field(default_factory=list)
    left_lite: list[str] = field(default_factory=list)
    progress: dict[tuple[str, int], Progress] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def route(self, topic: str) -> TopicRoute:
        self._fail()
        config = self._topic(topic)
        queues = tuple(RouteQueue(BROKER, number, config.permission) for number in range(config.queues))
        return TopicRoute(topic, config.message_type, queues)

    async def group(self, name: str) -> GroupConfig:
        self._fail()
        return self.groups.setdefault(name, GroupConfig(name))

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        self._fail()
        check_messages(messages, self._topic(messages[0].topic))
        return [self._store(message) for message in messages]

    async def end_transaction(self, topic: str, transaction_id: str, resolution: Resolution) -> None:
        self._fail()
        self.ended.append((topic, transaction_id, resolution))

    def watch_transactions(self, ask: Callable[[RecoverOrphanedTransaction], bool]) -> Callable[[], None]:
        self.watchers.append(ask)
        return lambda: self.watchers.remove(ask)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        self._fail()
        self._topic(request.topic)
        self.pops.append(request)
        give_up_s = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while not (found := self._take(request)):
            left_s = give_up_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return []
            self.arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.arrived.wait(), min(left_s, LOOK_AGAIN_S))
        return found

    async def ack(self, request: AckRequest) -> None:
        self._fail()
        self._delivery(request.group, request.handle).acked = True

    async def change_invisible(self, request: ChangeInvisibleRequest) -> ReceiptHandle:
        self._fail()
        self.changes.append(request)
        delivery = self._delivery(request.group, request.handle)
        now_ms = self.clock.now_ms()
        delivery.visible_ms = now_ms + request.invisible_ms
        delivery.handle = replace(request.handle, pop_time_ms=now_ms, invisible_ms=request.invisible_ms)
        return delivery.handle

    async def sync_lite_subscription(self, request: LiteSync) -> list[tuple[str, str]]:
        self._fail()
        self._topic(request.topic)
        self.lite_syncs.append(request)
        return self.lite_lost

    async def leave_lite_topics(self, client_id: str) -> None:
        self.left_lite.append(client_id)

    async def dead_letter(self, request: AckRequest) -> None:
        await self.ack(request)
        self.dead.append(request)

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _topic(self, name: str) -> TopicConfig:
        config = self.topics.get(name)
        if config is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name} does not exist.")
        return config

    def _store(self, message: OutgoingMessage) -> SendReceipt:
        now_ms, place = self.clock.now_ms(), len(self.log)
        stored = StoredMessage(
            topic=message.topic,
            queue_id=0,
            queue_offset=place,
            log_offset=place,
            body=message.body,
            properties=dict(message.properties),
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_timestamp_ms=now_ms,
            store_host=Address("127.0.0.1", 10911),
            system_flag=message.system_flag,
        )
        self.log.append(stored)
        self.arrived.set()
        return SendReceipt(message.properties[properties.UNIQUE_KEY], "", 0, place, place, now_ms)

    def _take(self, request: PopRequest) -> list[PoppedMessage]:
        now_ms = self.clock.now_ms()
        found: list[PoppedMessage] = []
        for message in self.log:
            if message.topic != request.topic or not request.filter.matches(message.properties):
                continue
            state = self.progress.setdefault((request.group, message.log_offset), Progress())
            if state.acked or state.visible_ms > now_ms or len(found) >= request.max_messages:
                continue
            state.attempts += 1
            state.visible_ms = now_ms + request.invisible_ms
            state.handle = ReceiptHandle(
                0, now_ms, request.invisible_ms, 0, 0, BROKER, 0, message.queue_offset, message.log_offset
            )
            found.append(PoppedMessage(message, state.handle, state.attempts))
        return found

    def _delivery(self, group: str, handle: ReceiptHandle) -> Progress:
        state = self.progress.get((group, handle.log_offset))
        if state is None or state.handle != handle or handle.expires_ms <= self.clock.now_ms():
            raise ConsumeRefused("INVALID_RECEIPT_HANDLE", f"The handle {handle.encode()} is not valid.")
        return state


def unforeseen() -> Exception:
    """What no part of the product raises on purpose."""
    return KeyError("secret-detail")


def store_failed() -> MillstreamError:
    """A failure of the broker's disk."""
    return MillstreamError("STORE_FAILED", "The log cannot be written.")
