from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.remoting.java_formats import MAX_DEPTH, MAX_TEXT_BYTES, read_fastjson, write_object_keys

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_json_reads_as_json(value: object) -> None:
    assert read_fastjson(json.dumps(value).encode()) == value
    assert read_fastjson(json.dumps(value, indent=2, ensure_ascii=False).encode()) == value


def test_objects_as_keys_become_sorted_pairs() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"minOffset":1},{"a":1}:2}}'
    key = (("brokerName", "b"), ("queueId", 0), ("topic", "t"))
    assert read_fastjson(text) == {"offsetTable": {key: {"minOffset": 1}, (("a", 1),): 2}}


def test_bare_integers_as_keys_are_read() -> None:
    assert read_fastjson(b'{0:"ip",1:"other"}') == {0: "ip", 1: "other"}


def test_what_is_written_with_object_keys_is_read_back() -> None:
    text = write_object_keys([({"queueId": 0, "topic": 't"x'}, {"v": 1}), ({"queueId": 1, "topic": "t"}, {"v": 2})])
    assert text == b'{{"queueId":0,"topic":"t\\"x"}:{"v":1},{"queueId":1,"topic":"t"}:{"v":2}}'
    assert [dict(key)["queueId"] for key in read_fastjson(text)] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"}",
        b'{"a"}',
        b'{"a":}',
        b"[1,2",
        b"[1 2]",
        b"{}{}",
        b"nope",
        b'"open',
        b"{[1]:2}",
        b"[" * 99 + b"]" * 99,
    ],
)
def test_broken_text_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_fastjson(text)


def test_a_text_over_the_limit_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="limit"):
        read_fastjson(b'"' + b"x" * MAX_TEXT_BYTES + b'"')


def test_nesting_ends_at_the_limit() -> None:
    assert read_fastjson(b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1))


@given(st.text(st.sampled_from('{}[]:,"\\ 01ab\n'), max_size=40))
def test_no_text_fails_in_another_way(text: str) -> None:
    with suppress(ValueError):
        read_fastjson(text.encode())
