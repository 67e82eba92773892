"""Java's regular expressions in Python's syntax: what is taken finds the same, the rest is refused."""

from __future__ import annotations

import re

import pytest

from millstream.streams.rules_sql.patterns import MAX_DEPTH, CannotBeRewritten, python_pattern


def found(pattern: str, text: str) -> bool:
    return re.search(python_pattern(pattern), text) is not None


@pytest.mark.parametrize(
    ("pattern", "texts", "others"),
    [
        (r"^\d+$", ["12", "12\n", "12\r\n", "12\u2028"], ["\u0661", "12\n\n", "x12"]),
        (r"\w{2}", ["a_"], ["é", "äö"]),
        (r"a\sb", ["a\x0bb"], ["a\u00a0b", "a\u2003b"]),
        (r"\S\D\W", ["ab-", "\u00a0\u0661é"], ["a1-", "abc"]),
        ("a.c", ["abc", "a\U0001f600c"], ["a\rc", "a\u0085c", "a\nc"]),
        ("(?s)a.c", ["a\rc", "a\nc"], ["ac"]),
        ("(?i)k.s", ["K-S", "k-s"], ["\u212a-s", "k-\u017f"]),
        ("(?i)[a-c]+É", ["aBcÉ"], ["abcé"]),
        ("(?i)[^x]y", ["aY"], ["Xy"]),
        (r"a\.b\\c", [r"a.b\c"], [r"axb\c"]),
        (r"\Qa.b\E+"[:-1], ["a.b"], ["axb"]),
        (r"\x41\u00e9", ["Aé"], ["x41"]),
        ("(?<name>a|b)+?c{2,3}", ["acc", "bacc"], ["ac"]),
        ("x$|^y", ["x", "yx\nz", "ax\r"], ["xy", "zy"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        ("a|", ["", "b"], []),
        ("[a-]", ["-", "a"], ["b"]),
    ],
)
def test_what_is_taken_finds_what_java_finds(pattern: str, texts: list[str], others: list[str]) -> None:
    assert [text for text in texts if not found(pattern, text)] == []
    assert [text for text in others if found(pattern, text)] == []


@pytest.mark.parametrize(
    "pattern",
    [r"\bword", "(?=a)", "(?<!a)b", r"(a)\1", "a++", "a{,3}", "a{3,2}", "a{5000}", "*a", "a**", "[a", "(a", "a)", "[]a]",
     "[a&&b]", "[a[b]]", r"\p{L}", r"[\D]", "(?m)^a", "(?x)a", "a(?i)b", r"\ud83d", "a{2}{3}", "(a$)b", ".*$", "[^a]$",
     r"\r$", "(?<n>a)(?<n>b)", "\\", "[b-a]", r"[\d-z]", "(" * (MAX_DEPTH + 1) + ")" * (MAX_DEPTH + 1), "a" * 20_000],
)  # fmt: skip
def test_what_the_two_understand_differently_is_refused(pattern: str) -> None:
    with pytest.raises(CannotBeRewritten, match=r"\w"):
        python_pattern(pattern)
