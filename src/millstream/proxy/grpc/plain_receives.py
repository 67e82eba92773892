"""Receives of ordinary new messages at a broker of the same process, answered in the turn in which they come, from the
bytes of the records.

A receive that waits, is renewed, filters or keeps order goes the general way, as do messages that are delivered again
or have something that few have; see `RunPopper` and `RunEncoder`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError

from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.group import is_tool_group
from millstream.model.operations import PopRequest
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import PREFIX
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.consume_handlers import ANSWER_MARGIN_S, SOMETHING
from millstream.proxy.grpc.message_conversion import duration_ms, message_filter
from millstream.proxy.grpc.message_encoder import RunEncoder, end_frame
from millstream.proxy.grpc.plain_caller import PlainCaller
from millstream.proxy.grpc.request_reading import MAX_PLAIN_BYTES
from millstream.proxy.processor import MAX_INVISIBLE_MS, MAX_RECEIVE_MESSAGES, MIN_RECEIVE_INVISIBLE_MS, Processor
from millstream.transport.grpc.call import ServerCall

__all__ = ["UNUSUAL_PAUSE", "PlainReceives"]

UNUSUAL_PAUSE: Final = 16
"""Receives of a topic that go the general way at once after its records were found to be unusual ones, which costs."""

_MAX_UNUSUAL_TOPICS: Final = 1024
_KEPT_ENCODERS: Final = 256

_OK: Final = int(m.OK)


def _frame(message: bytes) -> bytes:
    return PREFIX.pack(0, len(message)) + message


_BEGIN: Final = _frame(SOMETHING.SerializeToString())


class PlainReceives:
    """Answers what is ordinary. `processor` knows the limits of its clients."""

    def __init__(
        self, adapter: MessagingAdapter, processor: Processor, delivery: DeliveryService, clock: Clock
    ) -> None:
        self._adapter = adapter
        self._caller = PlainCaller(adapter)
        self._processor = processor
        self._delivery = delivery
        self._broker_name = delivery.broker_name
        self._clock = clock
        self._unusual: dict[str, int] = {}

    def answer(self, call: ServerCall) -> bool:
        """Whether the call is answered; if not, nothing was taken."""
        if not self._adapter.takes_plain_calls or len(call.request) > MAX_PLAIN_BYTES or call.is_stuffed:
            return False
        request = self._read(call)
        if request is None or self._is_unusual(request.topic):
            return False
        arrived_s = self._clock.monotonic_s()
        if self._caller.enter(call.metadata, arrived_s) is None:
            return False
        try:
            self._processor.check_room(call.metadata["x-mq-client-id"])
        except MillstreamError:
            # The general way says which limit it is.
            return False
        runs = self._delivery.find_runs(request)
        if not runs:
            return False
        written = [_BEGIN]
        body_bytes = 0
        encoder = _encoder_of(request.topic, self._broker_name)
        for run in runs:
            encoded = encoder.encode(
                run.data, run.places, run.queue_id, run.queue_offset, run.pop_time_ms, request.invisible_ms
            )
            if encoded is None:
                self._note_unusual(request.topic)
                return False
            written.append(encoded[0])
            body_bytes += encoded[1]
        self._delivery.take_runs(request, runs, body_bytes)
        written.append(_frame(end_frame(self._clock.now_ms())))
        call.answer_frames(b"".join(written))
        self._adapter.note("ReceiveMessage", _OK, arrived_s)
        return True

    def _read(self, call: ServerCall) -> PopRequest | None:
        """What an ordinary request asks for."""
        try:
            request = m.ReceiveMessageRequest.FromString(call.request)
        except DecodeError:
            return None
        group, queue = request.group, request.message_queue
        topic = queue.topic
        if request.auto_renew or group.resource_namespace or topic.resource_namespace or is_tool_group(group.name):
            return None
        if queue.broker.name not in ("", self._broker_name):
            return None
        if call.deadline_s is not None and call.deadline_s < ANSWER_MARGIN_S:
            return None
        invisible_ms = duration_ms(request.invisible_duration)
        if not MIN_RECEIVE_INVISIBLE_MS <= invisible_ms <= MAX_INVISIBLE_MS:
            return None
        try:
            wanted = message_filter(request.filter_expression)
        except MillstreamError:
            return None
        count = min(max(request.batch_size, 1), MAX_RECEIVE_MESSAGES)
        return PopRequest(group.name, topic.name, invisible_ms, None, count, wanted)

    def _is_unusual(self, topic: str) -> bool:
        left = self._unusual.get(topic, 0)
        if not left:
            return False
        if left > 1:
            self._unusual[topic] = left - 1
        else:
            del self._unusual[topic]
        return True

    def _note_unusual(self, topic: str) -> None:
        if len(self._unusual) >= _MAX_UNUSUAL_TOPICS:
            self._unusual.clear()
        self._unusual[topic] = UNUSUAL_PAUSE


@lru_cache(maxsize=_KEPT_ENCODERS)
def _encoder_of(topic: str, broker_name: str) -> RunEncoder:
    return RunEncoder(topic, broker_name)
