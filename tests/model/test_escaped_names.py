"""Names of any text as legal names, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.escaped_names import escape_name, hash_name, unescape_name
from millstream.model.topic import MAX_TOPIC_CHARACTERS, check_topic_name

TEXT = st.text(min_size=1, max_size=80)


@given(TEXT)
def test_an_escaped_name_is_legal_and_says_its_text_unless_it_is_a_hash(name: str) -> None:
    escaped = escape_name(name)
    check_topic_name(escaped)
    assert unescape_name(escaped) == (None if escaped.startswith("|h") else name)


@given(TEXT, st.text(alphabet="ab|h27 é", min_size=1, max_size=80), st.sampled_from([34, 40, MAX_TOPIC_CHARACTERS]))
def test_no_two_texts_have_the_same_name(first: str, second: str, limit: int) -> None:
    names = escape_name(first, limit), escape_name(second, limit)
    assert max(map(len, names)) <= limit
    assert (names[0] == names[1]) is (first == second)


def test_a_text_that_looks_like_a_hash_is_escaped_and_a_long_one_is_hashed() -> None:
    hashed = escape_name("x" * 500)
    assert hashed == "|h" + hash_name("x" * 500)
    assert escape_name(hashed) != hashed
    assert unescape_name(hashed) is None
    assert unescape_name("a|4") is None
    assert unescape_name("a|41") is None


def test_the_parts_of_a_hashed_name_are_told_apart() -> None:
    assert len({hash_name("ab", "c"), hash_name("a", "bc"), hash_name("abc")}) == 3
