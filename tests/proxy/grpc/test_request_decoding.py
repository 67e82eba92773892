"""Bytes of clients: what is a request is one, and no bytes become more objects than a limit allows."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from service_calls import message

from millstream.model.errors import MessageRefused
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.request_reading import MAX_LIST_BYTES, MAX_PARTS, MAX_PLAIN_BYTES, decode_request

EMPTY_MESSAGE = b"\x0a\x00"


def refusal(name: str, raw: bytes) -> str:
    with pytest.raises(MessageRefused) as refused:
        decode_request(METHODS[name], raw)
    return refused.value.name


def sends(*bodies: bytes, **filled: Any) -> bytes:
    request = m.SendMessageRequest(messages=[message(body=body, **filled) for body in bodies])
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("name", sorted(METHODS))
@given(raw=st.binary(max_size=200))
@example(raw=b"")
@example(raw=b"\xff" * 20)
@example(raw=b"\x0a\xff\xff\xff\xff\x0f")
@example(raw=b"\x0a\x05\x0a")
@example(raw=b"\x0b\x0c")
@example(raw=b"\x0a\x02\xc3\x28")
def test_any_bytes_are_a_request_or_refused(name: str, raw: bytes) -> None:
    try:
        found = METHODS[name].request.FromString(raw)
    except DecodeError:
        assert refusal(name, raw) == "REQUEST_MALFORMED"
    else:
        assert decode_request(METHODS[name], raw).SerializeToString() == found.SerializeToString()


def test_large_bodies_are_no_reason_to_refuse_a_send() -> None:
    raw = sends(bytes(4 << 20), bytes(4 << 20), bytes(4 << 20), b"small")
    assert [len(one.body) for one in decode_request(METHODS["SendMessage"], raw).messages] == [4 << 20] * 3 + [5]


def test_what_stands_beside_the_bodies_is_limited() -> None:
    assert refusal("SendMessage", sends(b"body", user={"much": "x" * MAX_LIST_BYTES})) == "REQUEST_TOO_LARGE"
    assert refusal("SendMessage", b"\x7a\x80\x80\x80\x01" + bytes(1 << 21)) == "REQUEST_TOO_LARGE"


def test_bodies_that_hide_behind_a_last_one_count() -> None:
    hidden = b"\x22\x80\x80\x40" + bytes(1 << 20)
    inner = hidden + hidden + b"\x22\x01x"
    raw = (
        b"\x0a"
        + bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7 & 0x7F | 0x80, len(inner) >> 14 & 0x7F | 0x80])
        + (bytes([len(inner) >> 21]) + inner)
    )
    assert len(m.SendMessageRequest.FromString(raw).messages[0].body) == 1
    assert refusal("SendMessage", raw) == "REQUEST_TOO_LARGE"


@pytest.mark.parametrize("name", ["SendMessage", "AckMessage", "SyncLiteSubscription", "Telemetry"])
def test_the_number_of_fields_is_limited(name: str) -> None:
    decode_request(METHODS["SendMessage"], EMPTY_MESSAGE * MAX_PARTS)
    field = b"\x22\x00" if name == "SyncLiteSubscription" else EMPTY_MESSAGE
    assert refusal(name, field * (MAX_PARTS + 1)) == "REQUEST_TOO_LARGE"


def test_other_requests_are_small() -> None:
    request = m.QueryRouteRequest(topic=m.Resource(name="x" * MAX_PLAIN_BYTES)).SerializeToString()
    assert refusal("QueryRoute", request) == "REQUEST_TOO_LARGE"
    assert len(request) > MAX_PLAIN_BYTES


def test_nesting_without_end_is_malformed() -> None:
    raw = b""
    for _ in range(200):
        raw = b"\x0b" + raw + b"\x0c"
    assert refusal("Heartbeat", raw) == "REQUEST_MALFORMED"
