"""The fields of pop, acknowledgement and change of the invisible time, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConsumeRefused, MessageRefused
from millstream.model.handles import ReceiptHandle
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PopRequest
from millstream.model.sql_filter import parse_filter
from millstream.protocol.remoting.messages import popping

_NAME = st.text("abcXYZ_-09", min_size=1, max_size=20)
_NUMBER = st.integers(0, 2**62)
_QUEUE = st.none() | st.integers(0, 1023)
_FILTER = st.sampled_from([parse_filter("", ""), parse_filter("TAG", "a||b"), parse_filter("SQL92", "a > 3")])
_HANDLE = st.builds(
    ReceiptHandle,
    start_offset=_NUMBER,
    pop_time_ms=_NUMBER,
    invisible_ms=_NUMBER,
    revive_queue=st.sampled_from([0, 999]),
    topic_kind=st.sampled_from([0, 1, 2]),
    broker_name=_NAME,
    queue_id=st.integers(0, 1023),
    queue_offset=_NUMBER,
    log_offset=st.integers(-1, 2**62),
    lite_topic=st.sampled_from(["", "ann"]),
)


@given(
    st.builds(
        popping.PopCall,
        st.builds(
            PopRequest,
            group=_NAME,
            topic=_NAME,
            invisible_ms=_NUMBER,
            queue_id=_QUEUE,
            max_messages=st.integers(1, 32),
            filter=_FILTER,
            wait_ms=_NUMBER,
            attempt_id=st.text(max_size=10),
            client_id=st.text(max_size=10),
            in_order=st.booleans(),
        ),
        _NUMBER,
        st.booleans(),
    )
)
def test_a_pop_is_read_as_it_was_written(call: popping.PopCall) -> None:
    ext = popping.encode_pop(call, "broker-a")
    assert popping.decode_pop(ext) == call
    assert ext["queueId"] == ("-1" if call.request.queue_id is None else str(call.request.queue_id))


@given(_NAME, _NAME, _HANDLE, st.booleans())
def test_an_acknowledgement_is_read_as_it_was_written(
    group: str, topic: str, handle: ReceiptHandle, in_time: bool
) -> None:
    request = AckRequest(group, topic, handle, in_time)
    assert popping.decode_ack(popping.encode_ack(request)) == request


@given(_NAME, _NAME, _HANDLE, _NUMBER, st.booleans(), st.booleans())
def test_a_change_of_the_invisible_time_is_read_as_it_was_written(
    group: str, topic: str, handle: ReceiptHandle, invisible_ms: int, suspend: bool, renewal: bool
) -> None:
    request = ChangeInvisibleRequest(group, topic, handle, invisible_ms, suspend=suspend, renewal=renewal)
    assert popping.decode_change(popping.encode_change(request)) == request


@given(_HANDLE, _NUMBER, _NUMBER)
def test_the_new_handle_is_made_of_the_answer_and_the_old_one(
    handle: ReceiptHandle, popped_ms: int, invisible_ms: int
) -> None:
    ext = {"popTime": str(popped_ms), "invisibleTime": str(invisible_ms), "reviveQid": "0"}
    new = popping.decode_change_answer(ext, handle)
    assert popping.encode_change_answer(new) == ext
    assert (new.queue_id, new.queue_offset, new.lite_topic) == (handle.queue_id, handle.queue_offset, handle.lite_topic)


@given(_NAME, _NAME, _QUEUE, _NUMBER, st.booleans())
def test_notifications_peeks_and_polling_questions_are_read_as_they_were_written(
    group: str, topic: str, queue_id: int | None, number: int, flag: bool
) -> None:
    notification = popping.Notification(group, topic, queue_id, number, number, flag, "a")
    assert popping.decode_notification(popping.encode_notification(notification)) == notification
    assert popping.decode_notification_answer(popping.encode_notification_answer(flag, not flag)) == (flag, not flag)
    peek = popping.PeekCall(group, topic, queue_id, 7)
    assert popping.decode_peek(popping.encode_peek(peek)) == peek
    assert popping.decode_polling(popping.encode_polling(group, topic, queue_id)) == (group, topic, queue_id)
    assert popping.decode_polling_answer(popping.encode_polling_answer(number)) == number


def test_a_java_clients_acknowledgement_of_a_redelivered_message_speaks_of_the_topic_that_was_popped() -> None:
    ext = {
        "consumerGroup": "g",
        "topic": "%RETRY%g_orders",
        "queueId": "0",
        "extraInfo": "5 1000 60000 0 1 broker-a 0 7",
        "offset": "7",
    }
    request = popping.decode_ack(ext)
    assert (request.topic, request.handle.topic_kind, request.handle.queue_offset) == ("orders", 1, 7)
    assert popping.topic_of_request("g", "%RETRY%g+orders") == "orders"
    assert popping.topic_of_request("g", "%RETRY%g") == "%RETRY%g"


def test_of_the_place_and_the_handle_of_a_request_the_place_counts() -> None:
    ext = popping.encode_ack(AckRequest("g", "t", ReceiptHandle(1, 2, 3, 0, 0, "b", 4, 5, 6)))
    handle = popping.decode_ack(ext | {"offset": "6", "queueId": "3"}).handle
    assert (handle.queue_id, handle.queue_offset, handle.pop_time_ms) == (3, 6, 2)
    with pytest.raises(ConsumeRefused) as refused:
        popping.decode_ack(ext | {"extraInfo": "1 2 3"})
    assert refused.value.name == "INVALID_RECEIPT_HANDLE"


@pytest.mark.parametrize("field", ["consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime", "pollTime"])
def test_a_pop_that_lacks_a_field_is_refused_with_its_name(field: str) -> None:
    ext = popping.encode_pop(popping.PopCall(PopRequest("g", "t", 1000), 1))
    del ext[field]
    with pytest.raises(MessageRefused, match=field):
        popping.decode_pop(ext)


@pytest.mark.parametrize(
    ("born_ms", "left_ms"), [(1000, 4000), (2000, 5000), (1999, 4999), (-3000, 5000), (-2999, 1), (9000, 5000)]
)
def test_the_polling_time_counts_from_the_clients_send_unless_its_clock_is_another_one(
    born_ms: int, left_ms: int
) -> None:
    assert popping.wait_ms(5000, born_ms, 2000) == left_ms


@given(st.lists(st.tuples(_HANDLE, st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"])), max_size=20))
def test_a_batch_of_acknowledgements_names_each_delivery_once(held: list[tuple[ReceiptHandle, str, str]]) -> None:
    requests = [AckRequest(group, topic, handle) for handle, group, topic in held if not handle.lite_topic]
    read = popping.decode_batch_ack(popping.encode_batch_ack("broker-a", requests))
    assert sorted(map(_known, read)) == sorted(set(map(_known, requests)))


def test_a_batch_with_long_names_as_java_also_reads_them_is_read() -> None:
    body = (
        b'{"brokerName":"b","acks":[{"consumerGroup":"g","topic":"%RETRY%g_t","retry":"1","startOffset":100,'
        b'"queueId":2,"reviveQueueId":3,"popTime":4,"invisibleTime":5,"bitSet":"BQE="}]}'
    )
    read = popping.decode_batch_ack(body)
    assert [request.handle.queue_offset for request in read] == [100, 102, 108]
    assert {(request.topic, request.handle.topic_kind) for request in read} == {("t", 1)}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"acks":[{}]}',
        b'{"acks":[{"c":"g","t":"t","so":0,"q":0,"pt":1,"it":1,"b":"?"}]}',
        b'{"acks":[{"c":"g","t":"t","so":0,"q":0,"pt":1,"it":1,"r":"x"}]}',
        b'{"acks":[{"c":"g","t":"t","so":0,"q":0,"pt":1,"it":1,"b":"' + b"AAAA" * 3000 + b'"}]}',
    ],
)
def test_a_batch_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(MessageRefused) as refused:
        popping.decode_batch_ack(body)
    assert refused.value.name == "MESSAGE_MALFORMED"


def test_a_batch_over_the_limit_is_refused() -> None:
    handles = [ReceiptHandle(0, 1, 1, 0, 0, "b", 0, offset, 0) for offset in range(popping.MAX_BATCH_ACKS + 1)]
    requests = [AckRequest("g", "t", handle) for handle in handles]
    assert len(popping.decode_batch_ack(popping.encode_batch_ack("b", requests[1:]))) == len(requests) - 1
    with pytest.raises(ConsumeRefused, match="4096"):
        popping.decode_batch_ack(popping.encode_batch_ack("b", requests))


def _known(request: AckRequest) -> tuple[str, str, int, int, int, int, int, int]:
    handle = request.handle
    return (
        request.group, request.topic, handle.queue_id, handle.queue_offset, handle.pop_time_ms, handle.invisible_ms,
        handle.topic_kind, handle.revive_queue,
    )  # fmt: skip
