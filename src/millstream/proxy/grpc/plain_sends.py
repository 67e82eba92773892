"""Sends that one chunk of a connection brought, stored together: a task, a future and a coroutine less for each.

It takes the ordinary ones for one topic; what is unusual, or might be refused, goes the general way, which says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from millstream.broker.delivery.admission import is_plain
from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import MAX_BODY_BYTES, SystemFlag
from millstream.model.properties import TAGS, UNIQUE_KEY, encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_send import GZIP, read_plain_send
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.grpc.adapter import MessagingAdapter, plain_receipt
from millstream.store.write_batch import AppendedRecord
from millstream.transport.grpc.call import ServerCall

__all__ = ["MAX_GATHERED_SENDS", "PlainSends"]

MAX_GATHERED_SENDS: Final = 1024
"""Sends of one turn that are stored together at most."""

_OK: Final = int(m.OK)
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)


class PlainSends:
    """Takes sends of one port for a broker of the same process. `adapter` refuses what cannot be stored."""

    def __init__(self, adapter: MessagingAdapter, delivery: DeliveryService, clock: Clock) -> None:
        self._adapter = adapter
        self._delivery = delivery
        self._clock = clock

    def take(self, calls: Sequence[ServerCall], start: int) -> int:
        """Store the ordinary sends of one topic from `start` on; how many were taken, 0 where there are none."""
        if not self._adapter.takes_plain_calls:
            return 0
        now_s = self._clock.monotonic_s()
        topic: TopicConfig | None = None
        taken: list[ServerCall] = []
        records: list[PlainRecord] = []
        for position in range(start, min(len(calls), start + MAX_GATHERED_SENDS)):
            call = calls[position]
            if call.method.name != "SendMessage":
                break
            sent = read_plain_send(call.request)
            if sent is None:
                break
            name, held, body, born_ms, encoding, user_properties = sent
            if topic is None:
                topic = self._delivery.plain_topic(name)
                if topic is None:
                    break
            if name != topic.name or len(body) > MAX_BODY_BYTES or not is_plain(held, user_properties):
                break
            peer = self._adapter.enter_plain(call.metadata, now_s)
            if peer is None:
                break
            flag = _COMPRESSED if encoding == GZIP else 0
            queue_id = self._delivery.next_queue(topic)
            stored, message_id = encode_properties(held), held[UNIQUE_KEY]
            records.append(
                PlainRecord(topic.name, queue_id, body, stored, message_id, held.get(TAGS), flag, born_ms, peer)
            )
            taken.append(call)
        if topic is None or not records:
            return 0
        try:
            self._delivery.store_plain(topic, records, partial(self._answer, taken, records, now_s))
        except MillstreamError:
            # The general way says what is wrong, to each.
            return 0
        return len(taken)

    def _answer(
        self,
        calls: Sequence[ServerCall],
        records: Sequence[PlainRecord],
        arrived_s: float,
        places: Sequence[AppendedRecord],
        error: BaseException | None,
    ) -> None:
        if error is not None:
            answer = self._adapter.failure("SendMessage", error, arrived_s, len(calls))
            for call in calls:
                call.answer(answer)
            return
        self._adapter.note("SendMessage", _OK, arrived_s, len(calls))
        for call, record, place in zip(calls, records, places, strict=True):
            call.answer(plain_receipt(record.message_id, place.queue_offset))
