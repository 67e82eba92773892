"""Properties of ordinary sends are read as the general way reads them, the first time and every later one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.delivery.admission import plain_properties
from millstream.broker.remoting.ordinary_sends import MAX_KNOWN_NAMES, read_ordinary_sends, read_properties
from millstream.model.message import Address
from millstream.model.properties import encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.command import RemotingCommand

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
