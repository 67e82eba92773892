"""Tag filters and the hash code that the consume queue holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.model.filter import ALL, java_hash_code, parse_tag_filter


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("Hello world", -832992604),
        ("Aa", 2112),
        ("BB", 2112),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_code_is_javas(text: str, code: int) -> None:
    assert java_hash_code(text) == code


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_a_star_and_blank_text_mean_all(expression: str) -> None:
    assert parse_tag_filter(expression) == ALL
    assert parse_tag_filter(expression).matches({})


def test_blanks_around_tags_do_not_count() -> None:
    assert parse_tag_filter(" a || b ||").tags == {"a", "b"}


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(MessageRefused, match="names no tag"):
        parse_tag_filter("|| ||")


def test_equal_hash_codes_are_told_apart_by_the_text() -> None:
    wanted = parse_tag_filter("Aa")
    assert wanted.may_match(java_hash_code("BB"))
    assert not wanted.matches({"TAGS": "BB"})
    assert not wanted.matches({})


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_the_hash_code_fits_32_signed_bits(text: str) -> None:
    assert -(2**31) <= java_hash_code(text) < 2**31


def test_an_endless_expression_is_refused() -> None:
    with pytest.raises(MessageRefused, match="16384"):
        parse_tag_filter("a" * 16385)
