"""Properties of ordinary sends are read as the general way reads them, the first time and every later one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.delivery.admission import plain_properties
from millstream.broker.remoting.ordinary_sends import (
    MAX_GATHERED_MESSAGES,
    MAX_KNOWN_NAMES,
    accept_run,
    read_ordinary_sends,
    read_properties,
)
from millstream.model.message import Address
from millstream.model.properties import encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.command import RemotingCommand, decode_json, encode_header
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
from millstream.protocol.remoting.request_shape import ShapedRun
from millstream.protocol.remoting.send_shape import learn_send
from millstream.protocol.remoting.shape_memory import ShapeMemory

names = st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "own", "", " ", "DELAY", "\xe4", "a b"])
values = st.one_of(st.sampled_from(["", " ", "|", "a|b", "x", "\x7f", "\xe4", "a\x01b"]), st.text(max_size=8))
pairs = st.lists(st.tuples(names, values), max_size=4).map(lambda held: "".join(f"{n}\x01{v}\x02" for n, v in held))
stored = st.one_of(pairs, pairs.map(lambda text: text[:-1]), st.tuples(pairs, st.text(max_size=4)).map("".join))


@given(st.lists(stored, max_size=6))
def test_properties_are_read_the_same_after_others_with_their_names(texts: list[str]) -> None:
    for text in texts:
        assert read_properties(text) == plain_properties(text)


@given(stored)
def test_what_is_stored_of_properties_is_what_they_encode_to(text: str) -> None:
    ext = {"a": "g", "b": "orders", "e": "1", "g": "5", "i": text}
    records = read_ordinary_sends([RemotingCommand(310, ext, b"x")], 0, TopicConfig("orders"), Address("192.0.2.7", 1))
    for record in records:
        assert record.stored_properties == encode_properties(record.properties)
    assert bool(records) is (not text or plain_properties(text) is not None)


def test_many_sets_of_names_are_forgotten_and_read_all_the_same() -> None:
    for number in range(MAX_KNOWN_NAMES + 2):
        assert read_properties(f"n{number}\x01v\x02") == {f"n{number}": "v"}
    assert read_properties("n0\x01\x03\x02") == plain_properties("n0\x01\x03\x02")


@pytest.mark.parametrize("name", ["INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"])
def test_who_names_light_queues_goes_the_general_way_where_the_names_are_taken_off(name: str) -> None:
    ext = {"a": "g", "b": "orders", "e": "1", "g": "5", "i": f"{name}\x01%LMQ%mqtt-x\x02"}
    assert not read_ordinary_sends([RemotingCommand(310, ext, b"x")], 0, TopicConfig("orders"), Address("192.0.2.7", 1))


odd = {
    "b": st.sampled_from(["orders", "other"]),
    "f": st.sampled_from(["0", "1", "4"]),
    "h": st.sampled_from(["0", "7"]),
    "m": st.sampled_from(["false", "true"]),
    "bornHost": st.just("10.0.0.1:5"),
}


@given(
    st.lists(st.tuples(st.sampled_from(["0", "3", "4", "77"]), stored, st.binary(max_size=2)), max_size=6),
    st.dictionaries(st.sampled_from(sorted(odd)), st.just(""), max_size=1),
    st.data(),
)
def test_what_a_run_of_a_shape_brings_is_accepted_as_if_its_sends_were_requests(
    sends: list[tuple[str, str, bytes]], changed: dict[str, str], data: st.DataObject
) -> None:
    fixed = {"a": "g", "b": "orders", "g": "5", **{name: data.draw(odd[name]) for name in changed}}
    frames = b"".join(
        b"".join(encode_frame(RemotingCommand(310, {**fixed, "e": queue, "i": text}, body, number)))
        for number, (queue, text, body) in enumerate(sends)
    )
    topic, peer = TopicConfig("orders"), Address("192.0.2.7", 1)
    for run in FrameDecoder(shapes=ShapeMemory(learns=True)).feed_runs(frames):
        if isinstance(run, ShapedRun):
            commands = run.commands()
            found = repr(accept_run(run, topic, peer))
            assert found == repr(read_ordinary_sends(commands, 0, topic, peer))


def test_a_run_is_accepted_up_to_the_most_that_are_gathered() -> None:
    ext = {"a": "g", "b": "orders", "e": "1", "g": "5", "i": ""}
    shape = learn_send(header := encode_header(RemotingCommand(310, ext)), decode_json(header))
    assert shape is not None
    run = ShapedRun(shape)
    for _ in range(MAX_GATHERED_MESSAGES + 1):
        record = shape.read(header + b"x", 0, len(header), len(header) + 1)
        assert record is not None
        run.requests.append(record)
    assert len(accept_run(run, TopicConfig("orders"), Address("192.0.2.7", 1))) == MAX_GATHERED_MESSAGES
