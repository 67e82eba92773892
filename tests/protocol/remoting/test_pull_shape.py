"""Pulls that are read by their shape are read as the general way reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.command import RemotingCommand, decode_json
from millstream.protocol.remoting.frame import encode_frame
from millstream.protocol.remoting.messages.pulls import pull_fields, pull_head
from millstream.protocol.remoting.pull_shape import learn_pull
from millstream.protocol.remoting.shape_memory import ShapeMemory


def header(opaque: object = 5, *, code: int = 11, **changed: str) -> bytes:
    ext = {
        "consumerGroup": "g", "queueOffset": "700", "maxMsgNums": "32", "sysFlag": "3", "commitOffset": "680",
        "suspendTimeoutMillis": "15000", "subVersion": "1700000000000", "queueId": "2", "topic": "orders",
        "maxMsgBytes": "2147483647", "expressionType": "TAG", **changed,
    }  # fmt: skip
    whole = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 401}
    return json.dumps(whole, separators=(",", ":")).encode()


def read(shapes: ShapeMemory, header: bytes, body: bytes = b"") -> RemotingCommand:
    data = b"before" + header + body + b"behind"
    start = len(b"before")
    place = (data, start, start + len(header), start + len(header) + len(body))
    pull = shapes.read(*place)
    if pull is None:
        return shapes.decode(*place)
    assert shapes.last is not None
    return shapes.last.command(pull)


def test_a_pull_that_differs_in_number_queue_and_offsets_fits_the_shape_of_the_first() -> None:
    first = header()
    other = header(70_000, queueId="11", queueOffset="123456789012", commitOffset="0")
    shape = learn_pull(first, decode_json(first))
    assert shape is not None
    pull = shape.read(other, 0, len(other), len(other))
    assert pull is not None
    assert (pull.opaque, pull.queue_id, pull.queue_offset, pull.commit_offset) == (70_000, 11, 123_456_789_012, 0)
    assert shape.command(pull) == decode_json(other)


@pytest.mark.parametrize("place", ["queueId", "queueOffset", "commitOffset"])
@pytest.mark.parametrize("text", ["", "-1", "01", "+1", " 1", "1_0", "1" * 19, "9" * 30, "\u0661"])
def test_numbers_of_another_form_fit_no_shape(place: str, text: str) -> None:
    shape = learn_pull(header(), decode_json(header()))
    assert shape is not None
    other = header(**{place: text})
    assert shape.read(other, 0, len(other), len(other)) is None


def test_a_pull_with_a_body_fits_no_shape_and_gives_none() -> None:
    assert learn_pull(header(), decode_json(header(), b"body")) is None
    shapes = ShapeMemory(learns=True)
    read(shapes, header())
    assert read(shapes, header(6), b"body") == decode_json(header(6), b"body")


odd_texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "0", "12", "680", '"', "\\", "\\u0001", "\x7f", "\xe4", "{}"])
)
opaques = st.one_of(st.integers(-(1 << 31), 1 << 34), st.sampled_from([0, 7, 9_999_999_999, 10_000_000_000]))


@given(st.lists(st.tuples(opaques, odd_texts, odd_texts, odd_texts, st.sampled_from(["orders", "other"])), max_size=6))
def test_whatever_pulls_say_they_are_read_as_the_general_way_reads_them(
    pulls: list[tuple[int, str, str, str, str]],
) -> None:
    shapes = ShapeMemory(learns=True)
    assert read(shapes, header()) == decode_json(header())
    for opaque, queue, offset, committed, topic in pulls:
        one = header(opaque, queueId=queue, queueOffset=offset, commitOffset=committed, topic=topic)
        assert read(shapes, one) == decode_json(one)


@given(st.data())
def test_a_header_with_a_changed_byte_is_read_or_refused_as_before(data: st.DataObject) -> None:
    shapes = ShapeMemory(learns=True)
    read(shapes, header())
    changed = bytearray(header())
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        wanted: object = decode_json(bytes(changed))
    except ConnectionFailed as error:
        wanted = str(error)
    try:
        found: object = read(shapes, bytes(changed))
    except ConnectionFailed as error:
        found = str(error)
    assert found == wanted


@pytest.mark.parametrize(
    "odd",
    [
        b'{"code":11,"opaque":5,"extFields":{"queueId":"1","queueOffset":"1"}}',
        b'{"code":11,"opaque":5,"extFields":{"queueId":"1","queueId":"2","queueOffset":"1","commitOffset":"1"}}',
        b'{"code":11,"opaque":5,"opaque":6,"extFields":{"queueId":"1","queueOffset":"1","commitOffset":"1"}}',
        b'{"code":11,"opaque":-5,"extFields":{"queueId":"1","queueOffset":"1","commitOffset":"1"}}',
        b'{"code":11,"remark":"words","opaque":5,"extFields":{"queueId":"1","queueOffset":"1","commitOffset":"1"}}',
        b'{"code":11,"opaque":5,"queueId":"1","queueOffset":"1","commitOffset":"1","extFields":{}}',
    ],
)
def test_a_header_whose_places_are_not_certain_gives_no_shape(odd: bytes) -> None:
    assert learn_pull(odd, decode_json(odd)) is None


@given(st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5), st.integers(0, 1 << 20))
def test_the_head_of_an_answer_is_that_of_the_general_way(numbers: list[int], body_bytes: int) -> None:
    opaque, *fields = numbers
    answer = RemotingCommand(11, opaque=opaque).response(ext=pull_fields(*fields), body_parts=(bytes(body_bytes),))
    head, *_ = encode_frame(answer)
    assert pull_head(opaque, *fields, body_bytes) == head
