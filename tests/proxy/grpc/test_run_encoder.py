"""Deliveries that are written from records' bytes are those that `MessageEncoder` writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model import properties as names
from millstream.model.handles import ReceiptHandle
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import PoppedMessage
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import PREFIX
from millstream.protocol.record import decode_record, encode_record
from millstream.proxy.grpc.message_encoder import MessageEncoder, RunEncoder

HOST = Address("192.0.2.1", 10911)
QUEUE, POPPED_MS, INVISIBLE_MS = 3, 1_790_000_000_007, 30_000
TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)
WORDS = st.text("abcé -\x1c", max_size=140)
USUAL = {"UNIQ_KEY": "0123456789ABCDEF0123456789ABCDEF", "PGROUP": "orders", "BORN_TIMESTAMP": "1790000000000"}
HELD = st.fixed_dictionaries(
    {"UNIQ_KEY": st.text("0123456789abcdef", min_size=1, max_size=40)},
    optional={
        names.TAGS: WORDS,
        names.KEYS: WORDS,
        names.BORN_HOST: WORDS,
        names.PRODUCER_GROUP: TEXTS,
        names.BORN_TIMESTAMP: TEXTS,
        "WAIT": st.just("true"),
        "own": TEXTS,
        "é": WORDS,
        "": TEXTS,
    },
)
MESSAGES = st.builds(
    OutgoingMessage,
    topic=st.sampled_from(["orders", "other"]),
    body=st.binary(max_size=200) | st.integers(0, 3000).map(bytes),
    properties=HELD | TEXTS.map(lambda text: {**USUAL, text: text}),
    system_flag=st.sampled_from([SystemFlag.NONE] * 9 + [SystemFlag.COMPRESSED]),
    born_timestamp_ms=st.integers(0, 1 << 50),
    born_host=st.sampled_from([HOST, Address("192.0.2.7", 5)]),
    reconsume_times=st.integers(0, 3),
)


def records_of(messages: list[OutgoingMessage], first: int, log_offset: int = 1 << 40) -> list[bytes]:
    records = []
    for number, message in enumerate(messages):
        record = encode_record(
            message,
            queue_id=QUEUE,
            queue_offset=first + number,
            log_offset=log_offset,
            store_timestamp_ms=1_790_000_000_000 + number // 2,
            store_host=HOST,
        )
        records.append(record)
        log_offset += len(record)
    return records


def places_of(records: list[bytes], log_offset: int = 1 << 40) -> list[tuple[int, int, int]]:
    places = []
    for record in records:
        places.append((log_offset, len(record), 0))
        log_offset += len(record)
    return places


def encode(records: list[bytes], first: int, queue_id: int = QUEUE) -> tuple[bytes, int] | None:
    encoder = RunEncoder("orders", "broker-a")
    return encoder.encode(b"".join(records), places_of(records), queue_id, first, POPPED_MS, INVISIBLE_MS)


def expected(records: list[bytes], first: int, queue_id: int = QUEUE) -> tuple[bytes, int]:
    encoder, written, body_bytes = MessageEncoder(m.Resource(name="orders")), b"", 0
    for number, (record, place) in enumerate(zip(records, places_of(records), strict=True)):
        stored = decode_record(record, verify=False)
        stored.queue_id, stored.queue_offset, stored.log_offset = queue_id, first + number, place[0]
        handle = ReceiptHandle(
            first + number, POPPED_MS, INVISIBLE_MS, 0, 0, "broker-a", queue_id, first + number, place[0]
        )
        frame = encoder.frame(PoppedMessage(stored, handle, 1))
        written += PREFIX.pack(0, len(frame)) + frame
        body_bytes += len(stored.body)
    return written, body_bytes


@given(st.lists(MESSAGES, max_size=5), st.integers(0, 1 << 60), st.sampled_from([0, 3, 999, 1 << 20]))
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_what_the_general_encoder_writes(
    messages: list[OutgoingMessage], first: int, queue_id: int
) -> None:
    records = records_of(messages, first)
    written = encode(records, first, queue_id)
    assert written is None or written == expected(records, first, queue_id)


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"TAGS": "t"},
        {"KEYS": "a b"},
        {"TAGS": "", "KEYS": ""},
        {"own": "v", "other": "", "é": "ü"},
        {"__BORNHOST": "h"},
        {"WAIT": "true"},
    ],
    ids=str,
)
def test_the_ordinary_message_is_written(held: dict[str, str]) -> None:
    records = records_of([OutgoingMessage("orders", b"x", USUAL | held), OutgoingMessage("orders", b"", USUAL)], 7)
    assert encode(records, 7) == expected(records, 7)


@pytest.mark.parametrize(
    "odd",
    [
        OutgoingMessage("orders", b"x", {}),
        OutgoingMessage("orders", b"x", {"UNIQ_KEY": "", "PGROUP": "g"}),
        OutgoingMessage("orders", b"x", USUAL, system_flag=SystemFlag.COMPRESSED),
        OutgoingMessage("orders", b"x", USUAL, system_flag=SystemFlag.TRANSACTION_COMMIT),
        OutgoingMessage("orders", b"x", USUAL, born_host=Address("2001:db8::1", 6)),
        OutgoingMessage("x" * 128, b"x", USUAL),
        *(
            OutgoingMessage("orders", b"x", {**USUAL, name: "1"})
            for name in (
                names.EXPIRES_MS,
                names.MESSAGE_GROUP,
                names.PRIORITY,
                names.LITE_TOPIC,
                names.TRACE_CONTEXT,
                names.TRANSACTION,
                names.DELIVERY_TIME_MS,
                names.DELAY_LEVEL,
                "DLQ_ORIGIN_TOPIC",
            )
        ),
    ],
    ids=str,
)
def test_an_unusual_message_among_ordinary_ones_is_left_to_the_general_encoder(odd: OutgoingMessage) -> None:
    usual = OutgoingMessage("orders", b"x", USUAL)
    assert encode(records_of([usual, odd], 0), 0) is None


@given(MESSAGES, st.data())
@settings(max_examples=300, deadline=None)
def test_a_record_with_other_bytes_is_left_or_written_as_the_general_encoder_does(
    message: OutgoingMessage, data: Any
) -> None:
    (record,) = records_of([message], 5)
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(36, len(record) - 25))] = data.draw(st.integers(0, 255))
    written = encode([bytes(changed)], 5)
    assert written is None or written == expected([bytes(changed)], 5)


def test_a_record_that_ends_earlier_is_left_to_the_general_encoder() -> None:
    (record,) = records_of([OutgoingMessage("orders", b"body", {**USUAL, "TAGS": "t"})], 5)
    assert [end for end in range(len(record)) if encode([record[:end]], 5) is not None] == []
