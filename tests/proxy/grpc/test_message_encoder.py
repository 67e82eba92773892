"""The bytes of a delivery are those that protobuf itself would write of its fields."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import properties as names
from millstream.model.handles import ReceiptHandle
from millstream.model.message import Address, StoredMessage, SystemFlag
from millstream.model.operations import PoppedMessage
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.wire import VARINTS
from millstream.proxy.grpc.message_encoder import MessageEncoder, end_frame, message_of
from millstream.proxy.grpc.namespace import NO_NAMESPACE, Namespace

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=200)
_WORD = st.text("abcdefghijklmnop-é", min_size=1, max_size=40)
_INT64 = st.integers(0, 2**63 - 1)
_TIME_MS = st.integers(-(2**62), 2**62) | st.integers(0, 2_000_000_000_000)
_USER = st.dictionaries(_WORD.map("u-{}".format), _TEXT, max_size=4)
_RESERVED = st.fixed_dictionaries(
    {},
    optional={
        names.UNIQUE_KEY: _TEXT,
        names.TAGS: _TEXT,
        names.KEYS: _TEXT,
        names.BORN_HOST: _TEXT,
        names.MESSAGE_GROUP: _TEXT,
        names.TRACE_CONTEXT: _TEXT,
        names.LITE_TOPIC: _TEXT,
        names.TRANSACTION: st.just("true"),
        names.DELIVERY_TIME_MS: st.integers(0, 2**62).map(str) | _TEXT,
        "TIMER_DELAY_SEC": st.integers(0, 100).map(str),
        "DELAY": st.integers(0, 18).map(str),
        names.PRIORITY: st.integers(0, 2**31 - 1).map(str) | _TEXT,
        names.PRODUCER_GROUP: _TEXT,
        "DLQ_ORIGIN_TOPIC": st.sampled_from(["orders", "acme%orders", "%RETRY%acme%g", "%x"]),
        "DLQ_ORIGIN_MESSAGE_ID": _TEXT,
    },
)
_STORED = st.builds(
    lambda reserved, user, **fields: StoredMessage(properties=reserved | user, **fields),
    reserved=_RESERVED,
    user=_USER,
    topic=st.sampled_from(["orders", "acme%orders"]),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=_INT64,
    log_offset=_INT64,
    body=st.binary(max_size=300) | st.integers(1, 40_000).map(bytes),
    born_timestamp_ms=_TIME_MS,
    born_host=st.sampled_from([Address("192.0.2.7", 50312), Address("2001:db8::1", 1)]),
    store_timestamp_ms=_TIME_MS,
    store_host=st.just(Address("192.0.2.1", 10911)),
    system_flag=st.sampled_from([SystemFlag.NONE, SystemFlag.TRANSACTION_COMMIT]),
)
_HANDLE = st.builds(
    ReceiptHandle, _INT64, _INT64, st.integers(0, 43_200_000), st.just(0), st.just(0), _WORD, st.just(3), _INT64, _INT64
)


def expected(stored: StoredMessage, topic: Any, space: Namespace) -> Any:
    """Field by field, by protobuf."""
    held = stored.properties
    host, last_ms = stored.store_host, 253_402_300_799_999
    place_id = "C0000201" + f"{host.port:08X}{stored.log_offset:016X}{stored.queue_offset:016X}"
    kinds = [
        (stored.system_flag is SystemFlag.TRANSACTION_COMMIT or names.TRANSACTION in held, m.TRANSACTION),
        (held.get("DELAY", "0") != "0" or names.DELIVERY_TIME_MS in held or "TIMER_DELAY_SEC" in held, m.DELAY),
        (names.MESSAGE_GROUP in held, m.FIFO),
        (names.PRIORITY in held, m.PRIORITY),
        (names.LITE_TOPIC in held, m.LITE),
        (True, m.NORMAL),
    ]
    system = m.SystemProperties(
        keys=held.get(names.KEYS, "").split(),
        message_id=held.get(names.UNIQUE_KEY) or place_id,
        body_digest=m.Digest(type=m.MD5, checksum=hashlib.md5(stored.body).hexdigest().upper()),
        body_encoding=m.IDENTITY,
        message_type=next(kind for is_it, kind in kinds if is_it),
        born_host=held.get(names.BORN_HOST) or stored.born_host.host,
        store_host=f"{host.host}:{host.port}",
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        delivery_attempt=1,
    )
    system.born_timestamp.FromMilliseconds(min(max(stored.born_timestamp_ms, 0), last_ms))
    system.store_timestamp.FromMilliseconds(min(max(stored.store_timestamp_ms, 0), last_ms))
    due = held.get(names.DELIVERY_TIME_MS, "")
    if due.isascii() and due.isdecimal() and len(due) < 20:
        system.delivery_timestamp.FromMilliseconds(min(int(due), last_ms))
    optional = {"tag": names.TAGS, "message_group": names.MESSAGE_GROUP, "trace_context": names.TRACE_CONTEXT}
    for field, name in {**optional, "lite_topic": names.LITE_TOPIC}.items():
        if name in held:
            setattr(system, field, held[name])
    if (priority := stored.priority) is not None:
        system.priority = priority
    if "DLQ_ORIGIN_TOPIC" in held:
        system.dead_letter_queue.topic = space.own(held["DLQ_ORIGIN_TOPIC"])
        system.dead_letter_queue.message_id = held.get("DLQ_ORIGIN_MESSAGE_ID", "")
    user = {name: value for name, value in held.items() if name not in names.RESERVED}
    return m.Message(topic=topic, body=stored.body, user_properties=user, system_properties=system)


@given(_STORED, _HANDLE, st.integers(-2, 2**31 - 1), st.sampled_from([NO_NAMESPACE, Namespace("acme")]))
def test_a_frame_holds_what_protobuf_would_hold(
    stored: StoredMessage, handle: ReceiptHandle, attempt: int, space: Namespace
) -> None:
    topic = m.Resource(name=space.own(stored.topic), resource_namespace=space.name)
    asked = m.Resource(name=stored.topic, resource_namespace=space.name)
    wanted = expected(stored, topic, space)
    wanted.system_properties.receipt_handle = handle.encode()
    wanted.system_properties.invisible_duration.FromMilliseconds(handle.invisible_ms)
    wanted.system_properties.delivery_attempt = max(attempt, 1)
    encoded = MessageEncoder(asked, space).frame(PoppedMessage(stored, handle, attempt))
    assert m.ReceiveMessageResponse.FromString(encoded) == m.ReceiveMessageResponse(message=wanted)
    if len(wanted.user_properties) < 2:
        # Entries of a map have no order.
        assert encoded == m.ReceiveMessageResponse(message=wanted).SerializeToString()


@pytest.mark.parametrize(
    ("held", "kind", "due_ms"),
    [
        ({}, m.NORMAL, None),
        ({names.MESSAGE_GROUP: "a"}, m.FIFO, None),
        ({names.TRANSACTION: "true"}, m.TRANSACTION, None),
        ({names.DELIVERY_TIME_MS: "1700000000123"}, m.DELAY, 1_700_000_000_123),
        ({names.DELIVERY_TIME_MS: "1700000000123", names.TRANSACTION: "true"}, m.TRANSACTION, 1_700_000_000_123),
        ({"TIMER_DELAY_MS": "5000"}, m.DELAY, None),
        ({"DELAY": "3"}, m.DELAY, None),
        ({"DELAY": "0"}, m.NORMAL, None),
        ({names.PRIORITY: "3"}, m.PRIORITY, None),
        ({names.LITE_TOPIC: "one"}, m.LITE, None),
    ],
)
def test_a_delivered_message_says_its_type_and_when_it_was_to_be_delivered(
    held: dict[str, str], kind: int, due_ms: int | None
) -> None:
    here = Address("192.0.2.1", 10911)
    stored = StoredMessage("orders", 0, 0, 0, b"x", held, 0, here, 0, here)
    system = message_of(stored, m.Resource(name="orders")).system_properties
    assert system.message_type == kind
    assert system.HasField("delivery_timestamp") == (due_ms is not None)
    assert due_ms is None or system.delivery_timestamp.ToMilliseconds() == due_ms


@given(_STORED)
def test_what_is_shown_without_a_handle_has_no_field_that_speaks_of_one(stored: StoredMessage) -> None:
    topic = m.Resource(name="orders")
    message = message_of(stored, topic)
    assert message == expected(stored, topic, NO_NAMESPACE)
    assert not message.system_properties.HasField("receipt_handle")
    assert not message.system_properties.HasField("invisible_duration")


@pytest.mark.parametrize("now_ms", [0, 1, 1_700_000_000_000, 1_700_000_000_123])
def test_the_last_frame_is_the_time_of_delivery(now_ms: int) -> None:
    wanted = m.ReceiveMessageResponse()
    wanted.delivery_timestamp.FromMilliseconds(now_ms)
    if now_ms == 0:
        wanted.delivery_timestamp.SetInParent()
    assert end_frame(now_ms) == wanted.SerializeToString()


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 20_000))
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    assert b"\x08" + VARINTS[number] == m.Duration(seconds=number).SerializeToString() or number == 0
