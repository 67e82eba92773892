"""Python twins of Java functions do what the Java class does."""

from __future__ import annotations

import pytest

from millstream.streams.functions.java_twins import JAVA_TWINS, count_char
from millstream.streams.functions.user_functions.user import load_user_function


@pytest.mark.parametrize(
    ("text", "character", "number"),
    [("abcabc", "c", 2), ("", "c", 0), (None, "c", 0), ("aé", "é", 1), ("abc", "cx", 1), ("abc", "x", 0)],
)
def test_count_char_counts_the_first_byte_and_nothing_in_null(text: str | None, character: str, number: int) -> None:
    assert count_char(text, character) == number


def test_every_twin_can_be_loaded() -> None:
    for path in JAVA_TWINS.values():
        assert load_user_function("f", path).path == path
