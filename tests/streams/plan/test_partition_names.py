"""Partition columns in the names of directories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.plan.tables import named_values, partition_name

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("column", "value", "name"),
    [
        ("dt", "2026-01-02", "dt=2026-01-02"),
        ("hm", "10:05", "hm=10%3A05"),
        ("p", "a/b=c%d", "p=a%2Fb%3Dc%25d"),
        ("p", "\t\x7f{[]^", "p=%09%7F%7B%5B%5D%5E"),
        ("p", "a b,c}ü", "p=a b,c}ü"),
        ("a:b", "1", "a%3Ab=1"),
        ("p", None, "p=__DEFAULT_PARTITION__"),
        ("p", "", "p=__DEFAULT_PARTITION__"),
    ],
)
def test_special_characters_are_escaped_as_hive_does_it(column: str, value: str | None, name: str) -> None:
    assert partition_name(column, value) == name


def test_null_has_the_name_that_the_table_gives_it() -> None:
    assert partition_name("p", None, "none:") == "p=none%3A"
    assert named_values(["p=none%3A", "q=__DEFAULT_PARTITION__"], "none:") == {"p": None, "q": "__DEFAULT_PARTITION__"}


@given(WORDS, WORDS)
def test_every_value_comes_back_and_is_one_name(column: str, value: str) -> None:
    name = partition_name(column, value)
    assert "/" not in name
    assert "\0" not in name
    assert named_values(["plain", name]) == {column: value}
