"""Rules and events drawn at random, over few fields so that they meet."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from millstream.streams.rules.conditions import OF_TWO_FIELDS, All, AnyOf, Not, Op, Predicate, TextStep, Truth

FIELDS = ("a", "b", "c", "d")
PATHS = {"c": (("nested", "c"), ("c",)), "d": (("d",), ("D",))}

_WORDS = (
    "",
    "a",
    "ab",
    "abc",
    "Abc\n",
    "İ",
    "ß",
    "SS",
    "K",
    "k",
    "ſ",
    "éa",
    "1",
    "1.0",
    "-2e1",
    "true",
    "10.1.2.3",
    "::1",
    " a  b ",
)
TEXTS = st.one_of(
    st.sampled_from(_WORDS),
    st.text("abAB1. \n\té/ßİıK\x1c\x00", max_size=12),
    st.lists(st.sampled_from(_WORDS), max_size=3).map("".join),
)
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from((0.5, 1.0, -0.0, 1e300, 10**30)))
_SINGLE = st.one_of(st.none(), TEXTS, NUMBERS, st.booleans(), st.dictionaries(st.sampled_from("xy"), TEXTS, max_size=1))
VALUES = st.one_of(_SINGLE, _SINGLE, st.lists(st.one_of(_SINGLE, st.lists(TEXTS, max_size=2)), max_size=3))
EXPRESSIONS = st.sampled_from(
    (
        "a",
        "^a",
        "a$",
        r"a\Z",
        r"\Aab",
        "b.*a",
        r"\ba\b",
        r"\Ba",
        r"\w+\s",
        r"\d",
        r"[^a]",
        ".b",
        "(?s).b",
        "(?i)k",
        "(?i)ss",
        "(?m)^b",
        "(?m)a$",
        "(a)b\\1",
        "a(?=b)",
        "(?<!a)b",
        "(?>a+)b",
        "a++b",
        "",
        "^$",
        "a{,2}b",
        "[[:alpha:]]",
        "a|^b",
        "(a|b$)c?",
        r"[\s\S]{3}",
        "(?a:\\w)é",
        "(?i)[h-l]",
        "é+",
        "\\x1c",
        r"\s",
        "(?i)ı",
        "a{2,90}",
        "(a)?(?(1)b|c)",
        "[^\\W\\d]",
        "(?!a)",
        "(?-i:A)b",
    )
)


def _atom(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Predicate]:
    return st.tuples(*parts).map(lambda drawn: Predicate(*drawn))


def _atoms(field: str) -> st.SearchStrategy[Predicate]:
    some = st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
    one = TEXTS.map(lambda text: (text,))
    steps = st.lists(st.sampled_from(TextStep), max_size=2).map(tuple)
    caseless, absent = st.booleans(), st.sampled_from((None, False, True))
    literal = st.sampled_from((Op.CONTAINS, Op.STARTS, Op.ENDS, Op.LESS, Op.GREATER_EQUAL))
    order = st.sampled_from((Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL))
    named = st.just(field)
    networks = st.sampled_from((("10.0.0.0/8",), ("10.1.2.3/32", "::/0"), ("0.0.0.0/0",), ("::ffff:10.0.0.0/104",)))
    return st.one_of(
        _atom(named, st.just(Op.IN), some, caseless, absent, steps),
        _atom(named, literal, one, caseless, absent, steps),
        _atom(named, st.just(Op.IN), st.lists(NUMBERS, min_size=1, max_size=3).map(tuple), st.just(False), absent),
        _atom(named, st.just(Op.IN), st.sampled_from(((True,), (False,), (True, False))), st.just(False), absent),
        _atom(named, order, NUMBERS.map(lambda number: (number,)), st.just(False), absent),
        _atom(named, st.just(Op.MATCHES), EXPRESSIONS.map(lambda text: (text,)), caseless, absent, steps),
        _atom(named, st.just(Op.CIDR), networks, st.just(False), absent),
        _atom(named, st.sampled_from((Op.IS_NULL, Op.EXISTS))),
        _atom(
            named,
            st.sampled_from(sorted(OF_TWO_FIELDS)),
            st.sampled_from(FIELDS).map(lambda name: (name,)),
            caseless,
            absent,
            steps,
        ),
        _atom(named, st.just(Op.CALL), st.just(("drawn_rules:says", "a")), st.just(False), absent),
    )


ATOMS = st.builds(
    lambda predicate, whole: msgspec.structs.replace(predicate, whole_lists=whole),
    st.one_of(*map(_atoms, FIELDS)),
    st.booleans(),
)
FORMULAS = st.recursive(
    st.one_of(ATOMS, ATOMS, ATOMS, st.sampled_from((True, False, None)).map(Truth)),
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(lambda some: All(tuple(some))),
        st.lists(parts, min_size=1, max_size=3).map(lambda some: AnyOf(tuple(some))),
        parts.map(Not),
    ),
    max_leaves=8,
)
_NESTED = st.fixed_dictionaries({}, optional={"c": VALUES})
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": VALUES,
        "b": VALUES,
        "c": VALUES,
        "d": VALUES,
        "D": VALUES,
        "nested": st.one_of(TEXTS, _NESTED, st.lists(st.one_of(_NESTED, TEXTS), max_size=3)),
    },
)


def says(value: object, word: str) -> bool | None:
    """A user's function: whether a text has a word in it, nothing of other values."""
    return word in value if isinstance(value, str) else None
