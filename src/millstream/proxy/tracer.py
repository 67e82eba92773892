"""Records message traces and stores them in the background."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final, Protocol, cast

from millstream.broker.remoting.sending import REGION
from millstream.model import properties
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.handles import ReceiptHandle
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PoppedMessage, PopRequest, Resolution, SendReceipt
from millstream.model.topic import is_system_topic
from millstream.protocol.trace import (
    TRACE_TOPIC,
    ConsumedTrace,
    DeliveredTrace,
    EndTransactionTrace,
    RecallTrace,
    SentTrace,
    TraceRecord,
    encode_trace,
    message_type_number,
    store_host_of,
)
from millstream.proxy.backend import BrokerBackend

__all__ = [
    "FLUSH_INTERVAL_S",
    "MAX_OPEN_DELIVERIES",
    "MAX_TRACE_BODY_BYTES",
    "MAX_TRACE_KEYS_CHARACTERS",
    "MAX_WAITING_RECORDS",
    "TraceSink",
    "Tracer",
    "trace_backend",
]


_log = logging.getLogger(__name__)

MAX_WAITING_RECORDS: Final = 20_000
"""Records that wait to be stored at most; later ones are dropped."""

MAX_OPEN_DELIVERIES: Final = 100_000
"""Deliveries that are remembered until their consumer ends them; the oldest are forgotten."""

MAX_TRACE_BODY_BYTES: Final = 128_000
"""Characters of one trace message's body, about; RocketMQ's limit. One record alone may be longer."""

MAX_TRACE_KEYS_CHARACTERS: Final = 8_000
"""Characters of one trace message's keys, about."""

FLUSH_INTERVAL_S: Final = 0.2
"""Seconds that a record waits at most for others to be stored with it."""

_STATES: Final = {
    Resolution.COMMIT: "COMMIT_MESSAGE",
    Resolution.ROLLBACK: "ROLLBACK_MESSAGE",
    Resolution.UNKNOWN: "UNKNOWN",
}

_Place = tuple[str, str, str, int, int]


class TraceSink(Protocol):
    """Where trace messages go."""

    async def store_traces(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages of the trace topic. Raises what storing raises."""
        ...


class Tracer:
    """Notes are made by the methods named for what happened; `start` before, `close` after, from one event loop.

    Messages of the system's own topics are not traced, so traces are not either.
    """

    def __init__(self, sink: TraceSink, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self._waiting: deque[TraceRecord] = deque()
        self._open: dict[_Place, tuple[str, PoppedMessage, int]] = {}
        self._requests = count(1)
        self._run_id = f"{clock.now_ms():x}"
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        """Records that were not stored."""

    async def start(self) -> None:
        """Begin to store what is noted."""
        self._task = asyncio.create_task(self._run(), name="tracer")

    async def close(self) -> None:
        """Store what waits and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self.flush()

    def note_send(
        self, messages: Sequence[OutgoingMessage], receipts: Sequence[SendReceipt] | None, took_ms: int
    ) -> None:
        """Messages were stored, or (no receipts) refused."""
        now_ms = self._clock.now_ms()
        for number, message in enumerate(messages):
            if is_system_topic(message.topic):
                continue
            held = message.properties
            offset_id = receipts[number].offset_message_id if receipts is not None else ""
            self._note(
                SentTrace(
                    timestamp_ms=now_ms - took_ms,
                    region=REGION,
                    group=held.get(properties.PRODUCER_GROUP, ""),
                    topic=message.topic,
                    message_id=held.get(properties.UNIQUE_KEY, ""),
                    tag=held.get(properties.TAGS, ""),
                    keys=held.get(properties.KEYS, ""),
                    store_host=store_host_of(offset_id) if offset_id else "",
                    body_bytes=len(message.body),
                    took_ms=took_ms,
                    type_number=message_type_number(message.message_type),
                    offset_message_id=offset_id,
                    succeeded=receipts is not None,
                )
            )

    def note_delivery(self, group: str, topic: str, popped: Iterable[PoppedMessage]) -> None:
        """Messages were handed to a consumer."""
        if is_system_topic(topic):
            return
        now_ms = self._clock.now_ms()
        request_id = f"{self._run_id}-{next(self._requests):x}"
        for one in popped:
            keys = one.message.properties.get(properties.KEYS, "")
            message_id = one.message.message_id
            self._note(DeliveredTrace(now_ms, REGION, group, request_id, message_id, one.delivery_attempt - 1, keys))
            place = _place(group, topic, one.handle)
            self._open.pop(place, None)
            self._open[place] = (request_id, one, now_ms)
        while len(self._open) > MAX_OPEN_DELIVERIES:
            del self._open[next(iter(self._open))]

    def note_consumption(self, group: str, topic: str, handle: ReceiptHandle, *, succeeded: bool) -> None:
        """A consumer said what became of a delivery; nothing is noted of one that was not delivered here."""
        found = self._open.pop(_place(group, topic, handle), None)
        if found is None:
            return
        request_id, one, delivered_ms = found
        now_ms = self._clock.now_ms()
        keys = one.message.properties.get(properties.KEYS, "")
        took_ms = max(now_ms - delivered_ms, 0)
        self._note(ConsumedTrace(request_id, one.message.message_id, took_ms, succeeded, keys, now_ms, group))

    def note_recall(self, topic: str, message_id: str, *, succeeded: bool) -> None:
        """A delayed message was taken back, or could not be."""
        self._note(RecallTrace(self._clock.now_ms(), REGION, topic, topic, message_id, succeeded))

    def note_end_of_transaction(self, topic: str, message_id: str, resolution: Resolution, *, was_asked: bool) -> None:
        """A producer said how a transaction ends, by itself or because it was asked."""
        now_ms, state = self._clock.now_ms(), _STATES[resolution]
        self._note(
            EndTransactionTrace(
                now_ms, REGION, topic, topic, message_id, "", "", "", message_id, state, from_check=was_asked
            )
        )

    async def flush(self) -> None:
        """Store all that waits now."""
        while self._waiting:
            records, message = self._next_message()
            try:
                await self._sink.store_traces([message])
            except MillstreamError as error:
                self.dropped += records
                _log.info("%d trace records were dropped: %s", records, error)

    def _note(self, record: TraceRecord) -> None:
        if len(self._waiting) >= MAX_WAITING_RECORDS:
            self.dropped += 1
            return
        self._waiting.append(record)
        self._arrived.set()

    def _next_message(self) -> tuple[int, OutgoingMessage]:
        """Take as many of the waiting records as fit one message; how many, and the message."""
        texts: list[str] = []
        keys: dict[str, None] = {}
        body_size = keys_size = 0
        while self._waiting:
            record = self._waiting[0]
            text = encode_trace(record)
            new = [key for key in _keys(record) if key not in keys]
            new_size = sum(len(key) + 1 for key in new)
            too_long = body_size + len(text) > MAX_TRACE_BODY_BYTES or keys_size + new_size > MAX_TRACE_KEYS_CHARACTERS
            if texts and too_long:
                break
            self._waiting.popleft()
            texts.append(text)
            keys.update(dict.fromkeys(new))
            body_size += len(text)
            keys_size += new_size
        held = {properties.KEYS: " ".join(keys)} if keys else {}
        body = "".join(texts).encode("utf-8", "replace")
        return len(texts), OutgoingMessage(TRACE_TOPIC, body, held, queue_id=0, born_timestamp_ms=self._clock.now_ms())

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            await asyncio.sleep(FLUSH_INTERVAL_S)
            self._arrived.clear()
            try:
                await self.flush()
            except Exception:  # noqa: BLE001 - a task of the proxy's whole life must outlive one bad turn
                _log.exception("traces could not be stored; the next ones follow")


def _place(group: str, topic: str, handle: ReceiptHandle) -> _Place:
    return group, topic, handle.broker_name, handle.queue_id, handle.queue_offset


def _keys(record: TraceRecord) -> list[str]:
    keys = [] if isinstance(record, RecallTrace) else record.keys.split()
    return [record.message_id, *keys] if record.message_id else keys


def trace_backend(backend: BrokerBackend, tracer: Tracer, clock: Clock) -> BrokerBackend:
    """The backend; what becomes of messages is noted as well, as far as the call itself tells.

    What a change of the invisible time or the end of a transaction means is the caller's to note.
    """
    return cast("BrokerBackend", _TracedBackend(backend, tracer, clock))


class _TracedBackend:
    def __init__(self, backend: BrokerBackend, tracer: Tracer, clock: Clock) -> None:
        self._backend = backend
        self._tracer = tracer
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        """Operations that are not traced are the backend's own."""
        return getattr(self._backend, name)

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        began_s = self._clock.monotonic_s()
        try:
            receipts = await self._backend.send(messages)
        except MillstreamError:
            self._tracer.note_send(messages, None, self._since_ms(began_s))
            raise
        self._tracer.note_send(messages, receipts, self._since_ms(began_s))
        return receipts

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        try:
            await self._backend.recall(broker_name, topic, message_id)
        except MillstreamError:
            self._tracer.note_recall(topic, message_id, succeeded=False)
            raise
        self._tracer.note_recall(topic, message_id, succeeded=True)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        popped = await self._backend.pop(broker_name, request)
        if popped:
            self._tracer.note_delivery(request.group, request.topic, popped)
        return popped

    async def ack(self, request: AckRequest) -> None:
        await self._backend.ack(request)
        self._tracer.note_consumption(request.group, request.topic, request.handle, succeeded=True)

    async def dead_letter(self, request: AckRequest) -> None:
        await self._backend.dead_letter(request)
        self._tracer.note_consumption(request.group, request.topic, request.handle, succeeded=False)

    def _since_ms(self, began_s: float) -> int:
        return int((self._clock.monotonic_s() - began_s) * 1000)
