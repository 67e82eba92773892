"""Acknowledgements at a broker of the same process, answered in the turn in which they come: nothing waits for
anything, so none needs a task.

Requests that name a namespace, and handles whose renewal is under way, go the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_ack import PlainDelivery, encode_ack_answer, handle_of, read_plain_ack
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.plain_caller import PlainCaller
from millstream.proxy.grpc.request_reading import MAX_PLAIN_BYTES
from millstream.proxy.grpc.status import OK, status_of
from millstream.proxy.processor import Processor
from millstream.transport.grpc.call import ServerCall

__all__ = ["MAX_ENTRIES", "MAX_GATHERED_ACKS", "PlainAcks"]

MAX_ENTRIES: Final = 64
"""Acknowledgements of one request at most; the general way lets others take their turns between more."""

MAX_GATHERED_ACKS: Final = 1024
"""Acknowledgements of one turn that are made together at most."""

_MAX_ENTRIES: Final = MAX_ENTRIES
_MAX_GATHERED: Final = MAX_GATHERED_ACKS
_MAX_BYTES: Final = MAX_PLAIN_BYTES
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
        self._caller = PlainCaller(adapter)
        self._processor = processor
        self._delivery = delivery
        self._broker_name = delivery.broker_name.encode()
        self._clock = clock

    def take(self, calls: Sequence[ServerCall], start: int) -> int:
        """Answer the ordinary requests of one group and topic from `start` on; how many, 0 where nothing was done."""
        if not self._adapter.takes_plain_calls or len(calls[start].request) > _MAX_BYTES:
            return 0
        return self._take_alike(calls, start) or int(self._answer_others(calls[start]))

    def _take_alike(self, calls: Sequence[ServerCall], start: int) -> int:
        """Answer the requests whose deliveries are ordinary ones that nobody renews; how many."""
        arrived_s = self._clock.monotonic_s()
        caller, renewer = self._caller, self._processor.renewer
        renews = not renewer.is_idle
        method = calls[start].method
        group = topic = ""
        gathered: list[list[bytes]] = []
        deliveries: list[PlainDelivery] = []
        for position in range(start, len(calls)):
            call = calls[position]
            if call.method is not method or len(call.request) > _MAX_BYTES:
                break
            read = read_plain_ack(call.request, self._broker_name, _MAX_ENTRIES)
            if read is None:
                break
            own_group, own_topic, entries, places = read
            if gathered and (
                own_group != group or own_topic != topic or len(deliveries) + len(places) > _MAX_GATHERED
            ):  # fmt: skip
                break
            if renews and renewer.is_tracking(own_group, map(handle_of, entries)):
                break
            if not (gathered and caller.is_last(call.metadata)) and caller.enter(call.metadata, arrived_s) is None:
                break
            group, topic = own_group, own_topic
            gathered.append(entries)
            deliveries += places
        if not gathered:
            return 0
        errors = self._delivery.ack_all(group, topic, deliveries)
        if errors is None:
            return 0
        self._answer(calls, start, gathered, topic, errors, arrived_s)
        return len(gathered)

    def _answer(
        self, calls: Sequence[ServerCall], start: int, gathered: list[list[bytes]], topic: str,
        errors: dict[int, MillstreamError], arrived_s: float,
    ) -> None:  # fmt: skip
        """Answer the calls from `start` on by their entries; `errors` go by the position among all of these."""
        counts: dict[int, int] = {}
        first = 0
        for number, entries in enumerate(gathered):
            statuses = [_OK] * len(entries)
            common, code = _OK, _OK_CODE
            if errors:
                for place in range(len(entries)):
                    error = errors.get(first + place)
                    if error is not None:
                        statuses[place] = status_of(error, topic).SerializeToString()
                common, code = _sum_up(statuses)
            first += len(entries)
            call = calls[start + number]
            call.answer(encode_ack_answer(common, entries, statuses))
            counts[code] = counts.get(code, 0) + 1
        for code, count in counts.items():
            self._adapter.note("AckMessage", code, arrived_s, count)

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
