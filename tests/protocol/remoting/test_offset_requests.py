"""The fields of requests about queues and the offsets of groups, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.operations import QueuePoint, ResetRequest
from millstream.protocol.remoting.messages import offsets

_NAME = st.text("abcXYZ_-09", min_size=1, max_size=20)
_NUMBER = st.integers(-(2**62), 2**62)
_QUEUE = st.integers(0, 1023)
_LO = st.booleans()


@given(st.builds(offsets.QueueCall, _NAME, _QUEUE, _LO))
def test_a_queue_is_read_as_it_was_written(call: offsets.QueueCall) -> None:
    assert offsets.decode_queue(offsets.encode_queue(call)) == call


@given(st.builds(offsets.TimeCall, _NAME, _QUEUE, _NUMBER, st.booleans(), _LO))
def test_a_time_is_read_as_it_was_written(call: offsets.TimeCall) -> None:
    assert offsets.decode_time(offsets.encode_time(call)) == call


@given(st.builds(offsets.OffsetQuery, _NAME, _NAME, _QUEUE, st.booleans(), _LO))
def test_a_question_for_an_offset_is_read_as_it_was_written(call: offsets.OffsetQuery) -> None:
    assert offsets.decode_offset_query(offsets.encode_offset_query(call)) == call


@given(st.builds(offsets.GroupOffset, _NAME, _NAME, _QUEUE, _NUMBER, _LO))
def test_a_commit_is_read_as_it_was_written(call: offsets.GroupOffset) -> None:
    assert offsets.decode_group_offset(offsets.encode_group_offset(call)) == call


@given(st.builds(offsets.ProgressQuery, _NAME, st.none() | _NAME, st.lists(_NAME, max_size=3).map(tuple), _LO))
def test_a_question_for_the_progress_is_read_as_it_was_written(call: offsets.ProgressQuery) -> None:
    assert offsets.decode_progress_query(offsets.encode_progress_query(call)) == call


@given(
    _NAME,
    _NAME,
    st.sampled_from([QueuePoint.OFFSET, QueuePoint.TIME, QueuePoint.LAST]),
    st.integers(0, 2**62),
    st.none() | _QUEUE,
    _LO,
)
def test_a_reset_is_read_as_it_was_written(
    group: str, topic: str, point: QueuePoint, value: int, queue_id: int | None, is_physical: bool
) -> None:
    timestamp_ms = {QueuePoint.OFFSET: 0, QueuePoint.TIME: value, QueuePoint.LAST: -1}[point]
    request = ResetRequest(group, topic, point, 0 if point is QueuePoint.LAST else value, queue_id)
    call = offsets.ResetCall(request, timestamp_ms, is_physical)
    assert offsets.decode_reset(offsets.encode_reset(call)) == call


@given(st.builds(offsets.CloneCall, _NAME, _NAME, st.none() | _NAME))
def test_a_clone_is_read_as_it_was_written(call: offsets.CloneCall) -> None:
    assert offsets.decode_clone(offsets.encode_clone(call)) == call


def test_the_fields_of_a_commit_keep_their_order() -> None:
    fields = offsets.encode_group_offset(offsets.GroupOffset("g", "t", 1, 2))
    assert [*fields.items()] == [("consumerGroup", "g"), ("topic", "t"), ("queueId", "1"), ("commitOffset", "2")]


def test_a_number_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(MessageRefused, match="commitOffset"):
        offsets.decode_group_offset({"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "x"})
