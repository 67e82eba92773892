"""Headers that are read by their shape are read as the general way reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting import shape_memory
from millstream.protocol.remoting.command import RemotingCommand, decode_json
from millstream.protocol.remoting.send_shape import learn_send
from millstream.protocol.remoting.shape_memory import MAX_SHAPES, SHAPE_PATIENCE, ShapeMemory

BODY = b"body"


def header(topic: str = "orders", opaque: object = 5, *, code: int = 310, **changed: str) -> bytes:
    ext = {
        "a": "g", "b": topic, "e": "2", "f": "0", "g": "1700000000000", "h": "0",
        "i": "UNIQ_KEY\x01AB\x02WAIT\x01true\x02", "m": "false", **changed,
    }  # fmt: skip
    whole = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 401}
    return json.dumps(whole, separators=(",", ":")).encode()


def read(shapes: ShapeMemory, header: bytes) -> RemotingCommand:
    data = b"before" + header + BODY + b"behind"
    start = len(b"before")
    place = (data, start, start + len(header), start + len(header) + len(BODY))
    record = shapes.read(*place)
    if record is None:
        return shapes.decode(*place)
    assert shapes.last is not None
    return shapes.last.command(record)


def general(header: bytes) -> RemotingCommand:
    return decode_json(header, BODY)


def test_a_send_that_differs_in_number_queue_time_and_properties_fits_the_shape_of_the_first() -> None:
    first, other = header(), header(opaque=70_000, e="11", g="1700000000999", i="UNIQ_KEY\x01C D\x02WAIT\x01\x02")
    shape = learn_send(first, general(first))
    assert shape is not None
    record = shape.read(other + BODY, 0, len(other), len(other) + len(BODY))
    assert record is not None
    assert (record.topic, record.queue_id, record.body, record.opaque) == ("orders", 11, BODY, 70_000)
    assert (record.message_id, record.tag, record.born_timestamp_ms) == ("C D", None, 1_700_000_000_999)
    assert record.properties == {"UNIQ_KEY": "C D", "WAIT": ""}
    assert shape.command(record) == general(other)


@pytest.mark.parametrize(
    ("tag", "keys"), [("a", "1 2"), ("", "1"), (" ", "1"), ("a|b", "1"), ("|", "1"), ("a", ""), ("a", " ")]
)
def test_a_tag_or_keys_that_have_to_be_looked_at_fit_no_shape(tag: str, keys: str) -> None:
    first, other = header(i="TAGS\x01x\x02KEYS\x01y\x02"), header(i=f"TAGS\x01{tag}\x02KEYS\x01{keys}\x02")
    shape = learn_send(first, general(first))
    assert shape is not None
    record = shape.read(other, 0, len(other), len(other))
    assert (record is not None) is ((tag, keys) == ("a", "1 2"))
    assert record is None or record.tag == "a"


@pytest.mark.parametrize("place", ["e", "g"])
@pytest.mark.parametrize("text", ["", "-1", "01", "+1", " 1", "1_0", "1" * 19, "9" * 30, "\u0661"])
def test_numbers_of_another_form_fit_no_shape(place: str, text: str) -> None:
    shape = learn_send(header(), general(header()))
    assert shape is not None
    other = header(**{place: text})
    assert shape.read(other, 0, len(other), len(other)) is None


odd_texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "0",
            "12",
            "1\x012\x02",
            "UNIQ_KEY\x01\x7e\x02WAIT\x01\x20\x02",
            '"',
            "\\",
            "\\u0001",
            "\x03",
            "\x7f",
            "\xe4",
            "{}",
        ]
    ),
)
opaques = st.one_of(st.integers(-(1 << 31), 1 << 34), st.sampled_from([0, 7, 9_999_999_999, 10_000_000_000]))


@given(st.lists(st.tuples(opaques, odd_texts, odd_texts, odd_texts, st.sampled_from(["orders", "other"])), max_size=6))
def test_whatever_sends_say_they_are_read_as_the_general_way_reads_them(
    sends: list[tuple[int, str, str, str, str]],
) -> None:
    shapes = ShapeMemory(learns=True)
    assert read(shapes, header()) == general(header())
    for opaque, queue, born, properties, topic in sends:
        one = header(topic, opaque, e=queue, g=born, i=properties)
        assert read(shapes, one) == general(one)


@given(st.data())
def test_a_header_with_a_changed_byte_is_read_or_refused_as_before(data: st.DataObject) -> None:
    shapes = ShapeMemory(learns=True)
    read(shapes, header())
    changed = bytearray(header())
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        wanted: object = general(bytes(changed))
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
        b'{"g":"1700000000001","code":310,"opaque":5,"extFields":{"g":"1700000000001","e":"1"}}',
        b'{"code":310,"opaque":5,"extFields":{"g":"1","g":"2","e":"1","i":""}}',
        b'{"code":310,"opaque":5,"opaque":6,"extFields":{"g":"1"}}',
        b'{"code":310,"opaque":-5,"extFields":{"g":"1"}}',
        b'{"code":310,"remark":"words","opaque":5,"extFields":{"g":"1"}}',
    ],
)
def test_a_header_whose_places_are_not_certain_gives_no_shape_that_reads_another_amiss(odd: bytes) -> None:
    shape = learn_send(odd, general(odd))
    for changed in (odd.replace(b'"1', b'"3'), odd.replace(b"5", b"61"), odd):
        if shape is not None:
            found = shape.read(changed, 0, len(changed), len(changed))
            assert found is None or shape.command(found) == decode_json(changed)


def test_no_more_shapes_are_kept_than_the_limit_and_old_ones_make_room_in_time() -> None:
    shapes = ShapeMemory(learns=True)
    for number in range(SHAPE_PATIENCE + 2 * MAX_SHAPES):
        one = header(f"topic-{number}")
        assert read(shapes, one) == general(one)
        assert is_known(shapes, one) is (number < MAX_SHAPES or number >= SHAPE_PATIENCE + MAX_SHAPES)
    assert not is_known(shapes, header("topic-0"))


def is_known(shapes: ShapeMemory, header: bytes) -> bool:
    """Whether the general way is not asked."""
    with pytest.MonkeyPatch.context() as patch:
        asked: list[bytes] = []

        def note(header: bytes, body: bytes = b"") -> RemotingCommand:
            asked.append(header)
            return RemotingCommand(1)

        patch.setattr(shape_memory, "decode_json", note)
        read(shapes, header)
    return not asked


def test_none_is_learned_where_that_saves_no_time() -> None:
    shapes = ShapeMemory(learns=False)
    assert read(shapes, header()) == general(header())
    assert not is_known(shapes, header())


def test_requests_of_other_kinds_and_what_wants_no_answer_are_read_in_the_general_way() -> None:
    shapes = ShapeMemory(learns=True)
    for one in (header(code=11), header().replace(b'"flag":0', b'"flag":2')):
        read(shapes, one)
        assert not is_known(shapes, one)
