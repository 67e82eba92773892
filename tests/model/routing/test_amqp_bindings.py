"""AMQP bindings against a matcher that does what the specification says, and nothing clever."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import NameRefused
from millstream.model.routing import amqp_bindings
from millstream.model.routing.amqp_bindings import MAX_HASHES, AmqpBinding, AmqpBindings, matches_headers

WORDS = st.sampled_from(["", "a", "b"])
KEYS = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=4).map(".".join)
NAMES = st.sampled_from(["h", "i", "x-j"])
ARGUMENTS = st.tuples(
    st.dictionaries(NAMES, st.sampled_from(["1", "2", None]), max_size=3),
    st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"]),
).map(lambda parts: tuple(sorted((parts[0] | ({"x-match": parts[1]} if parts[1] else {})).items())))
BINDINGS = st.builds(
    AmqpBinding,
    st.sampled_from(["direct", "fanout", "topic", "headers"]),
    st.sampled_from(["", "e"]),
    st.one_of(KEYS, PATTERNS),
    ARGUMENTS,
)


def fits_pattern(pattern: str, key: str) -> bool:
    """By regular expressions, each word with a `.` behind it; a blank key or pattern has no word."""
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    text = "".join(parts.get(word, re.escape(word) + r"\.") for word in (pattern.split(".") if pattern else ()))
    return re.fullmatch(text, key + "." if key else "") is not None


def fits(binding: AmqpBinding, exchange: str, key: str, headers: dict[str, str]) -> bool:
    if binding.exchange != exchange:
        return False
    match binding.kind:
        case "direct":
            return binding.key == key
        case "fanout":
            return True
        case "topic":
            return fits_pattern(binding.key, key)
        case _:
            return matches_headers(dict(binding.arguments), headers)


@given(
    st.lists(st.tuples(BINDINGS, st.integers(0, 2)), max_size=10, unique=True),
    st.sampled_from(["", "e"]),
    KEYS,
    st.dictionaries(NAMES, st.sampled_from(["1", "2"]), max_size=3),
    st.data(),
)
def test_a_message_finds_the_holders_whose_bindings_it_fits_also_after_some_are_removed(
    held: list[tuple[AmqpBinding, int]], exchange: str, key: str, headers: dict[str, str], data: st.DataObject
) -> None:
    bindings: AmqpBindings[tuple[int, int]] = AmqpBindings()
    for number, (binding, holder) in enumerate(held):
        binding.check()
        assert bindings.add(binding, (number, holder))
    gone = data.draw(st.sets(st.sampled_from(range(len(held))))) if held else set()
    for number in gone:
        assert bindings.remove(held[number][0], (number, held[number][1]))
        assert not bindings.remove(held[number][0], (number, held[number][1]))
    left = {(number, holder): binding for number, (binding, holder) in enumerate(held) if number not in gone}
    assert len(bindings) == len(left)
    expected = {holder for holder, binding in left.items() if fits(binding, exchange, key, headers)}
    assert set(bindings.match(exchange, key, headers)) == expected


def test_bindings_that_are_all_removed_leave_nothing() -> None:
    bindings: AmqpBindings[int] = AmqpBindings()
    held = [AmqpBinding(kind, "e", "a.#") for kind in ("direct", "fanout", "topic", "headers")]
    for binding in held:
        bindings.add(binding, 1)
    for binding in held:
        bindings.remove(binding, 1)
    assert not bindings._exchanges


@pytest.mark.parametrize(
    ("pattern", "key", "is_fit"),
    [
        ("*.stock.#", "usd.stock", True),
        ("*.stock.#", "eur.stock.db", True),
        ("*.stock.#", "stock.nasdaq", False),
        ("#", "", True),
        ("*", "", False),
        ("#.#", "a", True),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.x.y.b", True),
        ("a.#.b", "a.x.y", False),
        ("#.a.#", "b.a.b", True),
    ],
)
def test_topic_patterns_are_those_of_the_specification(pattern: str, key: str, is_fit: bool) -> None:
    bindings: AmqpBindings[str] = AmqpBindings()
    bindings.add(AmqpBinding("topic", "e", pattern), "one")
    assert bool(bindings.match("e", key, {})) is is_fit
    assert fits_pattern(pattern, key) is is_fit


@pytest.mark.parametrize(
    ("arguments", "headers", "is_fit"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {"a": "1"}, False),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
        ({"a": "1", "b": "2", "x-match": "any"}, {"a": "1"}, True),
        ({"a": None}, {"a": "9"}, True),
        ({"x-a": "1"}, {}, True),
        ({"x-a": "1", "x-match": "all-with-x"}, {}, False),
    ],
)
def test_headers_fit_as_x_match_says(arguments: dict[str, str | None], headers: dict[str, str], is_fit: bool) -> None:
    assert matches_headers(arguments, headers) is is_fit


@pytest.mark.parametrize(
    "binding",
    [
        AmqpBinding("queue", "e"),
        AmqpBinding("direct", "e", "k" * 256),
        AmqpBinding("topic", "e", ".".join("#" * (MAX_HASHES + 1))),
        AmqpBinding("headers", "e", "", (("x-match", "some"),)),
    ],
)
def test_what_is_no_binding_is_refused(binding: AmqpBinding) -> None:
    with pytest.raises(NameRefused, match="MS-2113"):
        binding.check()


@given(BINDINGS, KEYS, st.dictionaries(NAMES, st.sampled_from(["1", "2"]), max_size=3))
def test_a_binding_alone_fits_as_it_does_among_others(binding: AmqpBinding, key: str, headers: dict[str, str]) -> None:
    bindings: AmqpBindings[str] = AmqpBindings()
    bindings.add(binding, "q")
    assert amqp_bindings.fits(binding, key, headers) is bool(bindings.match(binding.exchange, key, headers))
