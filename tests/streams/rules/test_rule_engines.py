"""Each engine finds what Python finds: hyperscan what `re` does, tables what comparisons do."""

from __future__ import annotations

import re

import pytest
from drawn_rules import EXPRESSIONS, TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import plain_hits, rule_set, stage_hits

from example_counts import scaled
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.engines import literals
from millstream.streams.rules.engines.databases import HAS_HYPERSCAN, PatternDatabase, RefusedError
from millstream.streams.rules.engines.pattern_forms import hyperscan_forms
from millstream.streams.rules.stage import groups
from millstream.streams.rules.stage.stage import RuleStage

needs_hyperscan = pytest.mark.skipif(not HAS_HYPERSCAN, reason="there is no hyperscan on this machine")

_PIECES = st.sampled_from(
    [
        "a",
        "b",
        "K",
        "é",
        "ß",
        ".",
        r"\w",
        r"\s",
        r"\d",
        r"\W",
        r"\b",
        "[^a]",
        "[a-zé]",
        "^",
        "$",
        r"\Z",
        "\\n",
        "(?=b)",
        "(?!a)",
        "(?:a|b)",
        "(?i:k)",
        "(?i:ſ)",
    ]
)
_PATTERNS = st.one_of(
    EXPRESSIONS,
    st.lists(
        st.tuples(_PIECES, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,3}", "+?"])), min_size=1, max_size=5
    ).map(lambda pieces: "".join(f"(?:{piece}){times}" if times else piece for piece, times in pieces)),
)


@needs_hyperscan
@pytest.mark.filterwarnings("ignore:Possible nested set")
@settings(deadline=None, max_examples=scaled(200))
@given(_PATTERNS, st.lists(st.one_of(TEXTS, st.text(max_size=6)), min_size=1, max_size=8), st.booleans())
def test_hyperscan_misses_nothing_that_re_finds_and_is_exact_where_it_says_so(pattern, texts, caseless):
    flags = re.IGNORECASE if caseless else 0
    for ascii_only in (True, False):
        for form in hyperscan_forms(pattern, flags, ascii_only=ascii_only):
            try:
                database = PatternDatabase([form.pattern.encode()], utf8=not ascii_only, once=True)
            except RefusedError:
                continue
            for text in texts:
                if ascii_only and not text.isascii():
                    continue
                found = bool(database.matches(text.encode()))
                wanted = re.search(pattern, text, flags) is not None
                assert found == wanted if form.exact else found >= wanted, (form, text)


@needs_hyperscan
@pytest.mark.parametrize(
    ("pattern", "exact"),
    [
        (r"\bcmd\.exe\s+/c .{1,90}$", True),
        (r"(?i)power(?P<s>shell)?\Z", True),
        (r"a(?=b)", False),
        (r"(a)\1", False),
        ("x{1,40000}", True),
    ],
)
def test_what_most_rules_write_is_exact_for_ascii(pattern, exact):
    assert hyperscan_forms(pattern, 0, ascii_only=True)[0].exact is exact


def literal_rules(count):
    ops = (Op.CONTAINS, Op.STARTS, Op.ENDS)
    return rule_set(
        *(Predicate("a", ops[number % 3], (f"Lit{number}",), caseless=number % 2 == 0) for number in range(count)),
        *(
            Predicate("a", op, (text,), caseless=caseless)
            for op in ops
            for text in ("", "İ", "i̇x", "ß", "\x00a", "Lit1\n")
            for caseless in (False, True)
        ),
    )


def literal_texts():
    return [
        {"a": text}
        for number in range(0, 60, 7)
        for word in (f"Lit{number}", f"lIT{number}")
        for text in (word, f"é{word}", f"{word}İ", f"x\x00a{word}", f"{word}\n{word}", f"\ud800{word}", word * 3)
    ]


@pytest.mark.parametrize("patience", [0, 600])
@pytest.mark.parametrize("has_hyperscan", [False, pytest.param(True, marks=needs_hyperscan)])
def test_literals_are_found_where_python_finds_them(monkeypatch, has_hyperscan, patience):
    monkeypatch.setattr(groups, "HAS_HYPERSCAN", has_hyperscan)
    monkeypatch.setattr(literals, "PATIENCE_TEXTS", patience)
    rules = literal_rules(60)
    assert stage_hits(RuleStage(rules), literal_texts()) == plain_hits(rules, literal_texts())


@needs_hyperscan
def test_texts_of_many_blocks_are_told_apart(monkeypatch):
    monkeypatch.setattr(literals, "PATIENCE_TEXTS", 0)
    monkeypatch.setattr(literals, "_BLOCK_BYTES", 50)
    rules = literal_rules(60)
    assert stage_hits(RuleStage(rules), literal_texts()) == plain_hits(rules, literal_texts())


def test_without_hyperscan_expressions_are_left_to_re(monkeypatch):
    monkeypatch.setattr(groups, "HAS_HYPERSCAN", False)
    rules = rule_set(Predicate("a", Op.MATCHES, (r"^a+$",)), Predicate("a", Op.MATCHES, ("B",), caseless=True))
    events = [{"a": "aa"}, {"a": "ab"}, {"a": 1}, {}]
    assert stage_hits(RuleStage(rules), events) == plain_hits(rules, events) == [(0, 0), (1, 1)]


def test_a_text_of_megabytes_is_judged():
    text = "x" * 3_000_000 + "Needle7"
    rules = rule_set(
        *(Predicate("a", Op.ENDS, (f"needle{number}",), caseless=True) for number in range(20)),
        Predicate("a", Op.MATCHES, (r"x+Needle\d$",)),
    )
    assert stage_hits(RuleStage(rules), [{"a": text}]) == [(0, 7), (0, 20)]


_NUMBERS = st.one_of(st.integers(-5, 5), st.floats(), st.integers(10**20, 10**20 + 2))


@settings(deadline=None, max_examples=scaled(100))
@given(
    st.lists(
        st.tuples(st.sampled_from([Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL, Op.IN]), _NUMBERS),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.one_of(_NUMBERS, st.sampled_from(["1", "1.0", "-0", "x", "1e2", None, True])), max_size=10),
)
def test_bounds_are_compared_as_python_compares_them(atoms, values):
    rules = rule_set(*(Predicate("a", op, (operand,)) for op, operand in atoms))
    events = [{"a": value} for value in values]
    assert stage_hits(RuleStage(rules), events) == plain_hits(rules, events)


def test_addresses_are_found_in_their_networks():
    networks = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "fe80::/10", "::/0", "10.1.2.7/24"]
    rules = rule_set(
        *(Predicate("a", Op.CIDR, (one,)) for one in networks), Predicate("a", Op.CIDR, tuple(networks[:3]))
    )
    events = [
        {"a": one} for one in ("10.1.2.3", "10.1.9.9", "11.0.0.1", "fe80::1", "::ffff:10.1.2.3", "10.1.2", 7, None)
    ]
    hits = stage_hits(RuleStage(rules), events)
    assert hits == plain_hits(rules, events)
    assert [number for row, number in hits if row == 0] == [0, 1, 2, 3, 6, 7]


@needs_hyperscan
@given(st.lists(st.binary(max_size=6).map(lambda one: bytes(byte % 3 + ord("a") for byte in one)), max_size=8))
def test_a_text_is_found_where_anything_of_a_database_is_in_it_in_whatever_memory_it_lies(texts):
    database = PatternDatabase([b"ab", b"CA", b"b"], caseless=True)
    expected = [place for place, text in enumerate(texts) if b"b" in text or b"ca" in text]
    whole = memoryview(b"b".join([b"", *texts, b""]))
    starts = [sum(map(len, texts[:place])) + place + 1 for place in range(len(texts))]
    views = [whole[start : start + len(text)] for start, text in zip(starts, texts, strict=True)]
    assert database.any_in(texts) == database.any_in(views) == expected
