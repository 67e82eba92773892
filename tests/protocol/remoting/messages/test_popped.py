"""The answer to a pop: what was delivered is read from fields and records, as clients of RocketMQ read them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.handles import FIFO_REVIVE_QUEUE, ReceiptHandle
from millstream.model.message import Address, StoredMessage
from millstream.model.operations import PoppedMessage
from millstream.model.properties import POP_CHECK, encode_properties
from millstream.protocol.batches import record_of
from millstream.protocol.record import MAX_PROPERTIES_BYTES, decode_record
from millstream.protocol.remoting.messages.popped import (
    PoppedAnswer,
    decode_popped,
    encode_empty_answer,
    encode_offsets,
    encode_peek_answer,
    encode_popped,
    parse_offsets,
)

_HOST = Address("127.0.0.1", 10911)
_NOW = 1_700_000_000_000


def _popped(
    offset: int,
    *,
    queue: int = 0,
    topic: str = "t",
    popped_ms: int = _NOW,
    attempt: int = 1,
    revive: int = 0,
    kind: int = 0,
    lite: str = "",
) -> PoppedMessage:
    message = StoredMessage(
        topic, queue, offset, offset * 1000 + queue, b"body", {"TAGS": "a"}, _NOW, _HOST, _NOW, _HOST
    )
    handle = ReceiptHandle(offset, popped_ms, 60_000, revive, kind, "broker-a", queue, offset, message.log_offset, lite)
    return PoppedMessage(message, handle, attempt)


def _answer(popped: list[PoppedMessage]) -> PoppedAnswer:
    return encode_popped(popped, [record_of(each.message) for each in popped], "broker-a", 5)


def _read(answer: PoppedAnswer) -> list[PoppedMessage]:
    return decode_popped(answer.ext, b"".join(answer.records), "broker-a")


@given(
    st.lists(
        st.builds(
            _popped,
            st.integers(0, 2**40),
            queue=st.integers(0, 3),
            topic=st.sampled_from(["t", "%RETRY%g", "%LMQ%$b$x"]),
            popped_ms=st.integers(_NOW, _NOW + 2),
            attempt=st.integers(1, 17),
            revive=st.sampled_from([0, FIFO_REVIVE_QUEUE]),
        ),
        unique_by=lambda each: (each.message.topic, each.handle.queue_id, each.handle.queue_offset),
        min_size=1,
        max_size=32,
    )
)
def test_handles_and_attempts_are_read_as_the_broker_gave_them(drawn: list[PoppedMessage]) -> None:
    popped = [
        replace(each, handle=replace(each.handle, lite_topic="x")) if "LMQ" in each.message.topic else each
        for each in drawn
    ]
    read = _read(_answer(popped))
    assert [_known(each) for each in read] == [_known(each) for each in popped]
    assert [each.message.properties for each in read] == [each.message.properties for each in popped]


def _known(popped: PoppedMessage) -> tuple[object, ...]:
    handle = popped.handle
    return (
        popped.message.topic, popped.delivery_attempt, handle.pop_time_ms, handle.invisible_ms, handle.revive_queue,
        handle.broker_name, handle.queue_id, handle.queue_offset, handle.log_offset, handle.lite_topic,
    )  # fmt: skip


def test_what_is_delivered_for_the_first_time_is_sent_as_it_is_stored() -> None:
    popped = [_popped(3), _popped(4), _popped(9, queue=1)]
    records = [record_of(each.message) for each in popped]
    answer = encode_popped(popped, records, "broker-a", 5)
    assert all(sent is record for sent, record in zip(answer.records, records, strict=True))
    assert answer.ext == {
        "popTime": str(_NOW),
        "invisibleTime": "60000",
        "reviveQid": "0",
        "restNum": "5",
        "startOffsetInfo": "0 0 3;0 1 9",
        "msgOffsetInfo": "0 0 3,4;0 1 9",
    }


def test_a_message_without_a_record_of_its_own_gets_one() -> None:
    popped = [_popped(3)]
    answer = encode_popped(popped, [None], "broker-a", 0)
    assert decode_record(answer.records[0]).body == b"body"


def test_only_a_delivery_with_numbers_of_its_own_carries_its_handle() -> None:
    popped = [_popped(3), _popped(4, popped_ms=_NOW + 1), _popped(5)]
    answer = _answer(popped)
    assert [decode_record(record).properties.get(POP_CHECK) for record in answer.records] == [
        None,
        popped[1].handle.encode(),
        None,
    ]
    assert answer.ext["msgOffsetInfo"] == "0 0 3,4,5"


def test_offsets_are_listed_ascending_in_whatever_order_they_are_sent() -> None:
    answer = _answer([_popped(9), _popped(3)])
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("0 0 3", "0 0 3,9")


def test_a_message_that_was_delivered_before_says_how_often() -> None:
    [record] = _answer([_popped(3, attempt=4)]).records
    assert decode_record(record).reconsume_times == 3
    ordered = _answer([_popped(3, attempt=4, revive=FIFO_REVIVE_QUEUE), _popped(4, revive=FIFO_REVIVE_QUEUE)])
    assert ordered.ext["orderCountInfo"] == "0 qo0%3 3"


def test_messages_of_a_retry_topic_are_listed_by_their_kind() -> None:
    answer = _answer([_popped(3), _popped(3, topic="%RETRY%g"), _popped(4, topic="%RETRY%g+t")])
    assert answer.ext["msgOffsetInfo"] == "0 0 3;1 0 3;2 0 4"
    under_the_first_name = _answer([_popped(3), _popped(3, kind=1)])
    assert under_the_first_name.ext["msgOffsetInfo"] == "0 0 3;1 0 3"
    assert [each.handle.topic_kind for each in _read(under_the_first_name)] == [0, 1]


def test_a_handle_that_a_sender_wrote_into_its_message_is_not_taken_for_one() -> None:
    popped = _popped(3)
    popped.message.properties[POP_CHECK] = "9 9 9 9 0 broker-a 9 9"
    [read] = _read(_answer([popped]))
    assert read.handle.queue_offset == 3
    assert POP_CHECK not in read.message.properties


def test_a_message_without_room_for_its_handle_is_sent_without() -> None:
    popped = _popped(3, popped_ms=_NOW + 1)
    room = MAX_PROPERTIES_BYTES - len(encode_properties({**popped.message.properties, "x": ""}))
    popped.message.properties["x"] = "y" * room
    assert len(_read(_answer([popped, _popped(4), _popped(5)]))) == 3


def test_an_empty_answer_has_the_numbers_and_no_messages() -> None:
    ext = encode_empty_answer(_NOW, 60_000)
    numbers = {"popTime": str(_NOW), "invisibleTime": "60000", "reviveQid": "0", "restNum": "0"}
    assert ext == {**numbers, "startOffsetInfo": "", "msgOffsetInfo": ""}
    assert encode_peek_answer(7) == {**numbers, "popTime": "0", "invisibleTime": "0", "restNum": "7"}
    assert decode_popped(ext, b"", "broker-a") == []


def test_a_delivery_of_another_broker_carries_its_handle() -> None:
    popped = _popped(3)
    other = replace(popped, handle=replace(popped.handle, broker_name="broker-b"))
    assert [each.handle.broker_name for each in _read(_answer([other, _popped(4)]))] == ["broker-b", "broker-a"]


@pytest.mark.parametrize("info", ["x", "0 0", "0 0 1 2", "0 0 a", "0 0 1,,2", "0 0 1;;x"])
def test_offsets_that_cannot_be_read_are_refused(info: str) -> None:
    with pytest.raises(MessageRefused, match="answer to a pop"):
        parse_offsets(info)


def test_a_message_that_the_offsets_leave_out_is_refused() -> None:
    answer = _answer([_popped(3), _popped(4)])
    for ext in (answer.ext | {"msgOffsetInfo": "0 0 3"}, answer.ext | {"startOffsetInfo": ""}):
        with pytest.raises(MessageRefused, match="offset"):
            decode_popped(ext, b"".join(answer.records), "broker-a")


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.integers(0, 1023)), st.lists(st.integers(0, 2**62), min_size=1, max_size=8)
    )
)
def test_offset_texts_are_read_as_they_were_written(offsets: dict[tuple[int, int], list[int]]) -> None:
    assert parse_offsets(encode_offsets(offsets)) == {place: sorted(found) for place, found in offsets.items()}
