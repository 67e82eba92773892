"""Sends that one chunk of a connection brought, stored together: a task, a future and a coroutine less for each.

It takes the ordinary ones for one topic; what is unusual, or might be refused, goes the general way, which says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from millstream.broker.delivery.admission import MAX_USER_PROPERTIES_BYTES, is_plain
from millstream.broker.delivery_service import DeliveryService
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import MAX_BODY_BYTES, Address, SystemFlag
from millstream.model.properties import KEYS, TAGS, encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_send import GZIP, read_plain_send
from millstream.protocol.grpc.wire import VARINTS, bytes_field, tag
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.plain_caller import PlainCaller
from millstream.proxy.grpc.status import OK
from millstream.store.write_batch import AnyPlace
from millstream.transport.grpc.call import ServerCall

__all__ = ["MAX_GATHERED_SENDS", "PlainSends"]

MAX_GATHERED_SENDS: Final = 1024
"""Sends of one turn that are stored together at most."""

_OK: Final = int(m.OK)
_COMPRESSED: Final = int(SystemFlag.COMPRESSED)
_MAX_BODY_BYTES: Final = MAX_BODY_BYTES
_MAX_TEXT_BYTES: Final = MAX_USER_PROPERTIES_BYTES
_TAGS, _KEYS = TAGS, KEYS
_BEFORE_ENTRY: Final = bytes_field(tag(m.SendMessageResponse, "status"), OK.SerializeToString()) + tag(
    m.SendMessageResponse, "entries"
)
_BEFORE_ID: Final = bytes_field(tag(m.SendResultEntry, "status"), OK.SerializeToString()) + tag(
    m.SendResultEntry, "message_id"
)
_BEFORE_SECOND_ID: Final = tag(m.SendResultEntry, "transaction_id")
_ENTRY_BYTES: Final = len(_BEFORE_ID) + len(_BEFORE_SECOND_ID)
_OFFSET: Final = tag(m.SendResultEntry, "offset")
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_SEPARATORS: Final = b"\x01\x02"


class PlainSends:
    """Takes sends of one port for a broker of the same process. `adapter` refuses what cannot be stored."""

    def __init__(self, adapter: MessagingAdapter, delivery: DeliveryService, clock: Clock) -> None:
        self._adapter = adapter
        self._caller = PlainCaller(adapter)
        self._delivery = delivery
        self._clock = clock

    def take(self, calls: Sequence[ServerCall], start: int) -> int:  # noqa: C901 - each check is a reason to end
        """Store the ordinary sends of one topic from `start` on; how many were taken, 0 where there are none."""
        if not self._adapter.takes_plain_calls:
            return 0
        now_s = self._clock.monotonic_s()
        topic: TopicConfig | None = None
        peer: Address | None = None
        topic_name = ""
        method = calls[start].method
        taken: list[ServerCall] = []
        records: list[PlainRecord] = []
        for position in range(start, min(len(calls), start + MAX_GATHERED_SENDS)):
            call = calls[position]
            if call.method is not method:
                break
            sent = read_plain_send(call.request)
            if sent is None:
                break
            name, held, body, born_ms, encoding, user_properties = sent
            if topic is None:
                topic = self._delivery.plain_topic(name)
                if topic is None:
                    break
                topic_name = topic.name
            stored = _stored_text(held, user_properties)
            if name != topic_name or len(body) > _MAX_BODY_BYTES or stored is None:
                break
            if peer is None or not self._caller.is_last(call.metadata):
                peer = self._caller.enter(call.metadata, now_s)
                if peer is None:
                    break
            flag = _COMPRESSED if encoding == GZIP else 0
            records.append(PlainRecord(topic_name, 0, body, held, stored, flag, born_ms, peer))
            taken.append(call)
        if topic is None or not records:
            return 0
        turn, queues = self._delivery.take_turns(topic, len(records)), topic.write_queues
        for record in records:
            record.queue_id = turn % queues
            turn += 1
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
        _places: Sequence[AnyPlace],
        error: BaseException | None,
    ) -> None:
        if error is not None:
            answer = self._adapter.failure("SendMessage", error, arrived_s, len(calls))
            for call in calls:
                call.answer(answer)
            return
        self._adapter.note("SendMessage", _OK, arrived_s, len(calls))
        for number, record in enumerate(records):
            call = calls[number]
            call.answer(plain_receipt(record.message_id, record.queue_offset))


def plain_receipt(name: str, queue_offset: int) -> bytes:
    """The response to an ordinary send of one message, in wire format."""
    message_id = name.encode()
    size = VARINTS[len(message_id)]
    offset = _OFFSET + VARINTS[queue_offset] if queue_offset else b""
    entry_bytes = _ENTRY_BYTES + 2 * (len(size) + len(message_id)) + len(offset)
    return b"".join(
        (_BEFORE_ENTRY, VARINTS[entry_bytes], _BEFORE_ID, size, message_id, _BEFORE_SECOND_ID, size, message_id, offset)
    )


def _stored_text(held: dict[str, str], user_properties: int) -> bytes | None:
    """The stored text of properties; None where they are not those of an ordinary message, as `is_plain` says. The last
    `user_properties` of them are a user's."""
    stored = encode_properties(held)
    # What is left without all that can be printed is what parts names and values.
    if stored.translate(None, _PRINTABLE) != _SEPARATORS * len(held) or len(stored) > _MAX_TEXT_BYTES:
        return None
    if user_properties:
        return stored if is_plain(held, user_properties) else None
    tag, keys = held.get(_TAGS), held.get(_KEYS)
    if (tag is not None and (not tag.strip() or "|" in tag)) or (keys is not None and not keys.strip()):
        return None
    return stored
