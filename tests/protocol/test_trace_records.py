"""Trace records: the text that RocketMQ's tools read, and what others may have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import Address
from millstream.model.topic import MessageType
from millstream.protocol.record import offset_message_id
from millstream.protocol.trace import (
    ConsumedTrace,
    DeliveredTrace,
    EndTransactionTrace,
    RecallTrace,
    SentTrace,
    TraceRecord,
    decode_traces,
    encode_trace,
    message_type_number,
    store_host_of,
)

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")).filter(lambda w: w != "null")
NUMBERS = st.integers(0, 2**53)
RECORDS = st.one_of(
    st.builds(SentTrace, NUMBERS, *[WORDS] * 7, NUMBERS, NUMBERS, NUMBERS, WORDS, st.booleans()),
    st.builds(DeliveredTrace, NUMBERS, *[WORDS] * 4, NUMBERS, WORDS),
    st.builds(ConsumedTrace, WORDS, WORDS, NUMBERS, st.booleans(), WORDS, NUMBERS, WORDS),
    st.builds(EndTransactionTrace, NUMBERS, *[WORDS] * 9, st.booleans()),
    st.builds(RecallTrace, NUMBERS, *[WORDS] * 4, st.booleans()),
)


@given(st.lists(RECORDS))
def test_what_was_written_is_read_back(records: list[TraceRecord]) -> None:
    assert decode_traces("".join(map(encode_trace, records)).encode()) == records


def test_a_sent_message_has_rocketmq_s_fields_in_their_order() -> None:
    record = SentTrace(7, "R", "pg", "t", "ID", "tag", "k1 k2", "1.2.3.4:5", 10, 3, 0, "OFF", True)
    assert encode_trace(record).split("\x01") == [
        "Pub", "7", "R", "pg", "t", "ID", "tag", "k1 k2", "1.2.3.4:5", "10", "3", "0", "OFF", "true\x02",
    ]  # fmt: skip


def test_a_consumed_message_has_rocketmq_s_fields_in_their_order() -> None:
    record = ConsumedTrace("REQ", "ID", 12, False, "k", 99, "g")
    assert encode_trace(record).split("\x01") == ["SubAfter", "REQ", "ID", "12", "false", "k", "4", "99", "g\x02"]


@given(st.binary(max_size=200))
def test_a_body_that_is_no_trace_is_passed_over(body: bytes) -> None:
    assert decode_traces(body) == [] or b"\x01" in body


def test_broken_records_do_not_hide_the_others() -> None:
    good = RecallTrace(1, "R", "g", "t", "ID", True)
    text = "Pub\x01soon\x02" + "SubBefore\x011\x02" + "Later\x01x\x02" + encode_trace(good) + "half a rec"
    assert decode_traces(text.encode()) == [good]


def test_separators_in_a_client_s_text_cannot_forge_a_record() -> None:
    forged = RecallTrace(1, "R", "g", "t", "ID\x02Recall\x011\x01R\x01g\x01t\x01OTHER\x01true", True)
    (read,) = decode_traces(encode_trace(forged).encode())
    assert read.message_id == "ID?Recall?1?R?g?t?OTHER?true"


def test_java_s_null_is_blank() -> None:
    (read,) = decode_traces(b"SubBefore\x011\x01null\x01g\x01REQ\x01ID\x010\x01null\x02")
    assert (read.region, read.keys) == ("", "")  # type: ignore[union-attr]


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1"])
def test_the_broker_of_an_offset_message_id_is_told(host: str) -> None:
    assert store_host_of(offset_message_id(Address(host, 10911), 1 << 40)) == f"{host}:10911"


def test_types_have_rocketmq_s_numbers() -> None:
    types = (MessageType.NORMAL, MessageType.TRANSACTION, MessageType.DELAY, MessageType.FIFO, MessageType.LITE)
    assert [message_type_number(kind) for kind in types] == [0, 1, 3, 4, 0]
