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
from millstream.protocol.grpc.wire import VARINTS, bytes_field, tag
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.request_reading import MAX_PLAIN_BYTES
from millstream.proxy.grpc.status import OK, status_of
from millstream.proxy.processor import Processor
from millstream.transport.grpc.call import ServerCall

__all__ = ["MAX_ENTRIES", "PlainAcks"]

MAX_ENTRIES: Final = 64
"""Acknowledgements of one request at most; the general way lets others take their turns between more."""

_STATUS: Final = tag(m.AckMessageResponse, "status")
_ENTRY: Final = tag(m.AckMessageResponse, "entries")
_MESSAGE_ID: Final = tag(m.AckMessageResultEntry, "message_id")
_HANDLE: Final = tag(m.AckMessageResultEntry, "receipt_handle")
_ENTRY_STATUS: Final = tag(m.AckMessageResultEntry, "status")
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
        self._clock = clock

    def answer(self, call: ServerCall) -> bool:
        """Whether the call is answered; if not, nothing was done."""
        if not self._adapter.takes_plain_calls or len(call.request) > MAX_PLAIN_BYTES:
            return False
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
        parts: list[bytes] = []
        for entry, handle, status in zip(entries, handles, statuses, strict=True):
            told = handle.encode()
            message_id = entry.message_id.encode()
            fields = b"".join(
                (
                    *((_MESSAGE_ID, VARINTS[len(message_id)], message_id) if message_id else ()),
                    _HANDLE, VARINTS[len(told)], told,
                    _ENTRY_STATUS, VARINTS[len(status)], status,
                )
            )  # fmt: skip
            parts += (_ENTRY, VARINTS[len(fields)], fields)
        common, code = statuses[0], _OK_CODE
        if any(status is not _OK for status in statuses):
            codes = {m.Status.FromString(status).code for status in statuses}
            code = codes.pop() if len(codes) == 1 else _MULTIPLE_CODE
            common = common if code != _MULTIPLE_CODE else _MULTIPLE
        call.answer(b"".join((bytes_field(_STATUS, common), *parts)))
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
