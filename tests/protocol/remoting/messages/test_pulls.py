"""The fields of pulls and of bulk fetches, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.sql_filter import parse_filter
from millstream.protocol.remoting.administration.static_topics import PHYSICAL
from millstream.protocol.remoting.fields import UNCAPPED
from millstream.protocol.remoting.messages.pulls import (
    FetchCall,
    PullCall,
    decode_fetch,
    decode_pull,
    encode_fetch,
    encode_pull,
)

_NAME = st.text("abcXYZ_-09", min_size=1, max_size=20)
_NUMBER = st.integers(0, 2**62)
_QUEUE = st.integers(0, 1023)
_FILTER = st.sampled_from([parse_filter("TAG", "*"), parse_filter("TAG", "a||b"), parse_filter("SQL92", "a > 3")])
_MANDATORY = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "1",
    "queueOffset": "2",
    "maxMsgNums": "3",
    "sysFlag": "4",
}


@given(
    st.builds(
        PullCall,
        group=_NAME,
        topic=_NAME,
        queue_id=_QUEUE,
        queue_offset=_NUMBER,
        max_messages=_NUMBER,
        max_bytes=st.none() | st.integers(1, 2**62),
        filter=st.none() | _FILTER,
        sub_version=_NUMBER,
        wait_ms=_NUMBER,
        commit_offset=st.none() | _NUMBER,
        is_uncapped=st.booleans(),
        is_physical=st.booleans(),
    )
)
def test_a_pull_is_read_as_it_was_written(call: PullCall) -> None:
    more = {**(UNCAPPED if call.is_uncapped else {}), **(PHYSICAL if call.is_physical else {})}
    assert decode_pull({**encode_pull(call), **more}) == call


@given(st.builds(FetchCall, _NAME, _NAME, _QUEUE, _NUMBER, st.none() | st.integers(1, 2**62), _NUMBER))
def test_a_fetch_is_read_as_it_was_written(call: FetchCall) -> None:
    assert decode_fetch(encode_fetch(call)) == call


def test_the_fields_of_a_pull_keep_their_order() -> None:
    call = PullCall("g", "t", 1, 2, 3, 4, parse_filter("TAG", "a"), wait_ms=5)
    assert [*encode_pull(call).items()] == [
        ("consumerGroup", "g"),
        ("topic", "t"),
        ("queueId", "1"),
        ("queueOffset", "2"),
        ("maxMsgNums", "3"),
        ("maxMsgBytes", "4"),
        ("sysFlag", "6"),
        ("commitOffset", "0"),
        ("suspendTimeoutMillis", "5"),
        ("subscription", "a"),
        ("subVersion", "0"),
        ("expressionType", "TAG"),
    ]


def test_a_pull_waits_and_commits_only_where_its_flags_say_so() -> None:
    fields = {**_MANDATORY, "commitOffset": "7", "suspendTimeoutMillis": "8"}
    assert (decode_pull(fields).commit_offset, decode_pull(fields).wait_ms) == (None, 0)
    flagged = decode_pull({**fields, "sysFlag": "3"})
    assert (flagged.commit_offset, flagged.wait_ms, flagged.filter) == (7, 8, None)


@pytest.mark.parametrize("name", _MANDATORY)
def test_a_pull_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(MessageRefused, match=name):
        decode_pull({field: value for field, value in _MANDATORY.items() if field != name})
