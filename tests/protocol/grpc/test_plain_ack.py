"""Acknowledgements read from their bytes: what protobuf reads, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.errors import ConsumeRefused
from millstream.model.handles import ReceiptHandle
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.plain_ack import encode_ack_answer, handle_of, read_plain_ack

NAMES = st.one_of(st.text(max_size=4), st.sampled_from(["g", "orders", "x" * 140, "\xe4"]))
NUMBERS = st.one_of(st.integers(0, 9), st.integers(-1, 1 << 62))
HANDLE = "1200 1764184500123 300000 0 0 broker-a 3 1200 4096"


@st.composite
def handles(draw: st.DrawFn) -> str:
    """Handles of all kinds, most of them ordinary."""
    words = [str(draw(NUMBERS)) for _ in range(9)]
    words[4] = draw(st.sampled_from(["0", "0", "0", "1", "00", "+0"]))
    words[5] = draw(st.sampled_from(["broker-a", "broker-a", "broker-b", "", "\xe4"]))
    if draw(st.integers(0, 5)) == 0:
        place = draw(st.integers(0, 8))
        words[place : place + draw(st.integers(0, 1))] = [draw(st.sampled_from(["", "x", "1_0", "\u0661", "1" * 130]))]
    return " ".join(words)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    entries = []
    for _ in range(draw(st.integers(0, 4))):
        entry = m.AckMessageEntry(receipt_handle=draw(handles()), message_id=draw(st.one_of(st.just(""), NAMES)))
        if draw(st.integers(0, 9)) == 0:
            entry.lite_topic = draw(NAMES)
        entries.append(entry)
    request = m.AckMessageRequest(
        group=m.Resource(name=draw(NAMES)), topic=m.Resource(name=draw(NAMES)), entries=entries
    )
    if draw(st.integers(0, 9)) == 0:
        request.topic.resource_namespace = draw(NAMES)
    return request


@given(requests())
@settings(max_examples=500, deadline=None)
def test_what_is_read_from_the_bytes_is_what_protobuf_reads(request: Any) -> None:
    read = read_plain_ack(request.SerializeToString(), b"broker-a", 3)
    if read is None:
        return
    group, topic, entries, deliveries = read
    texts = [*map(handle_of, entries)]
    assert not request.group.resource_namespace + request.topic.resource_namespace
    assert (group, topic) == (request.group.name, request.topic.name)
    assert [m.AckMessageEntry.FromString(entry) for entry in entries] == [*request.entries]
    assert len(entries) <= 3
    assert not any(entry.HasField("lite_topic") for entry in request.entries)
    assert texts == [entry.receipt_handle for entry in request.entries]
    for text, delivery in zip(texts, deliveries, strict=True):
        handle = ReceiptHandle.decode(text)
        assert (handle.queue_id, handle.queue_offset, handle.pop_time_ms) == delivery
        assert (handle.broker_name, handle.topic_kind, handle.lite_topic) == ("broker-a", 0, "")


@given(handles())
@settings(max_examples=500, deadline=None)
def test_a_handle_that_cannot_be_decoded_is_not_ordinary(handle: str) -> None:
    entries = [m.AckMessageEntry(receipt_handle=handle)]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="t"), entries=entries)
    try:
        ReceiptHandle.decode(handle)
    except ConsumeRefused:
        assert read_plain_ack(request.SerializeToString(), b"broker-a", 3) is None


@given(st.binary(max_size=60), st.integers(0, 200))
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_no_request_are_left_to_protobuf(noise: bytes, place: int) -> None:
    entries = [m.AckMessageEntry(message_id="0" * 32, receipt_handle=HANDLE)] * 2
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="t"), entries=entries)
    raw = bytearray(request.SerializeToString())
    raw[place : place + len(noise)] = noise
    read = read_plain_ack(bytes(raw), b"broker-a", 3)
    if read is not None:
        parsed = m.AckMessageRequest.FromString(bytes(raw))
        assert [entry.receipt_handle for entry in parsed.entries] == [*map(handle_of, read[2])]
        assert [parsed.group.name, parsed.topic.name] == [*read[:2]]


@pytest.mark.parametrize("message_id", ["", "0" * 32])
def test_what_official_clients_send_is_ordinary(message_id: str) -> None:
    entries = [m.AckMessageEntry(message_id=message_id, receipt_handle=HANDLE)]
    request = m.AckMessageRequest(group=m.Resource(name="g"), topic=m.Resource(name="orders"), entries=entries)
    read = read_plain_ack(request.SerializeToString(), b"broker-a", 3)
    assert read is not None
    assert read[3] == [(3, 1200, 1_764_184_500_123)]
    for end in range(len(request.SerializeToString())):
        assert read_plain_ack(request.SerializeToString()[:end], b"broker-a", 3) is None


def test_an_answer_repeats_each_entry_with_its_status() -> None:
    entries = [m.AckMessageEntry(message_id=f"id-{number}", receipt_handle=HANDLE) for number in range(3)]
    good, bad = m.Status(code=m.OK, message="OK"), m.Status(code=m.INVALID_RECEIPT_HANDLE, message="It ended." * 40)
    statuses = [good.SerializeToString(), bad.SerializeToString(), good.SerializeToString()]
    written = encode_ack_answer(bad.SerializeToString(), [entry.SerializeToString() for entry in entries], statuses)
    answer = m.AckMessageResponse.FromString(written)
    assert answer.status == bad
    assert [entry.message_id for entry in answer.entries] == ["id-0", "id-1", "id-2"]
    assert [entry.receipt_handle for entry in answer.entries] == [HANDLE] * 3
    assert [entry.status for entry in answer.entries] == [good, bad, good]
