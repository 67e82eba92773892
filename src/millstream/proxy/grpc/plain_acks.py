"""Acknowledgements at a broker of the same process, answered in the turn in which they come: nothing waits for
anything, so none needs a task.

Requests that name a namespace, and handles whose renewal is under way, go the general way.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_ack import PlainDelivery, encode_ack_answer, read_plain_ack
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.request_reading import MAX_PLAIN_BYTES
from millstream.proxy.grpc.status import OK, status_of
from millstream.proxy.processor import Processor
from millstream.transport.grpc.call import ServerCall

__all__ = ["MAX_ENTRIES", "PlainAcks"]

MAX_ENTRIES: Final = 64
"""Acknowledgements of one request at most; the general way lets others take their turns between more."""

_OK: Final = OK.SerializeToString()
_MULTIPLE: Final = m.Status(code=m.MULTIPLE_RESULTS, message="See the status of each entry.").SerializeToString()
_OK_CODE: Final = int(m.OK)
_MULTIPLE_CODE: Final = int(m.MULTIPLE_RESULTS)


class PlainAcks:
    """Answers what is ordinary. `processor` knows which deliveries are renewed."""

    def __init__(
        self, adapter: MessagingAdapter, processor: Processor, delivery: DeliveryService, clock: Clock
    ) -> None:
        self._adapter = adapter
        self._processor = processor
        self._delivery = delivery
        self._broker_name = delivery.broker_name.encode()
        self._clock = clock

    def answer(self, call: ServerCall) -> bool:
        """Whether the call is answered; if not, nothing was done."""
        if not self._adapter.takes_plain_calls or len(call.request) > MAX_PLAIN_BYTES:
            return False
        read = read_plain_ack(call.request, self._broker_name, MAX_ENTRIES)
        return (read is not None and self._answer_plain(call, *read)) or self._answer_others(call)

    def _answer_plain(
        self, call: ServerCall, group: str, topic: str, entries: list[bytes], handles: list[bytes],
        deliveries: list[PlainDelivery],
    ) -> bool:  # fmt: skip
        """Whether all deliveries are ordinary ones that nobody renews, and were answered together."""
        if self._processor.renewer.is_tracking(group, map(bytes.decode, handles)):
            return False
        arrived_s = self._clock.monotonic_s()
        if self._adapter.enter_plain(call.metadata, arrived_s) is None:
            return False
        errors = self._delivery.ack_all(group, topic, deliveries)
        if errors is None:
            return False
        statuses = [_OK] * len(entries)
        for position, error in errors.items():
            statuses[position] = status_of(error, topic).SerializeToString()
        common, code = _sum_up(statuses) if errors else (_OK, _OK_CODE)
        call.answer(encode_ack_answer(common, entries, statuses))
        self._adapter.note("AckMessage", code, arrived_s)
        return True

    def _answer_others(self, call: ServerCall) -> bool:
        """Answer what protobuf's decoder reads: any handles, each acknowledged for itself."""
        try:
            request = m.AckMessageRequest.FromString(call.request)
        except DecodeError:
            return False
        group, topic, entries = request.group, request.topic, request.entries[:]
        if group.resource_namespace or topic.resource_namespace or not 0 < len(entries) <= MAX_ENTRIES:
            return False
        handles = [entry.receipt_handle for entry in entries]
        group_name, topic_name = group.name, topic.name
        if self._processor.renewer.is_renewing(group_name, handles):
            return False
        arrived_s = self._clock.monotonic_s()
        if self._adapter.enter_plain(call.metadata, arrived_s) is None:
            return False
        statuses = self._acknowledge(group_name, topic_name, handles)
        written = [
            m.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=handle).SerializeToString()
            for entry, handle in zip(entries, handles, strict=True)
        ]
        common, code = _sum_up(statuses)
        call.answer(encode_ack_answer(common, written, statuses))
        self._adapter.note("AckMessage", code, arrived_s)
        return True

    def _acknowledge(self, group: str, topic: str, handles: list[str]) -> list[bytes]:
        """The status of each, in wire format."""
        ack, delivery = self._processor.ack_at_once, self._delivery
        statuses = []
        for handle in handles:
            try:
                ack(delivery, group, topic, handle)
            except MillstreamError as error:
                statuses.append(status_of(error, topic).SerializeToString())
            else:
                statuses.append(_OK)
        return statuses


def _sum_up(statuses: list[bytes]) -> tuple[bytes, int]:
    """The status of all and its code: theirs where they agree, else MULTIPLE_RESULTS."""
    if all(status is _OK for status in statuses):
        return _OK, _OK_CODE
    codes = {m.Status.FromString(status).code for status in statuses}
    return (statuses[0], codes.pop()) if len(codes) == 1 else (_MULTIPLE, _MULTIPLE_CODE)
