"""The stored text of message properties."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.properties import RESERVED, decode_properties, encode_properties, has_control_character

_PLAIN = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)))


@given(st.dictionaries(_PLAIN, _PLAIN))
def test_what_was_encoded_is_decoded(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_the_stored_text_is_rocketmqs() -> None:
    assert encode_properties({"KEYS": "a b", "TAGS": "t"}) == b"KEYS\x01a b\x02TAGS\x01t\x02"


def test_the_last_mark_may_be_missing() -> None:
    assert decode_properties(b"a\x01b\x02c\x01d") == {"a": "b", "c": "d"}


def test_a_pair_without_a_name_mark_is_passed_over() -> None:
    assert decode_properties(b"lonely\x02a\x01b\x02") == {"a": "b"}


def test_control_characters_are_seen() -> None:
    assert has_control_character("a\x00b")
    assert has_control_character("\x9f")
    assert not has_control_character("plain ü 世")


def test_the_message_group_is_reserved() -> None:
    assert "__SHARDINGKEY" in RESERVED
