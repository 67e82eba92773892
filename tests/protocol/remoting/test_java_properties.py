from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.java_formats import decode_java_properties, encode_java_properties

values = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text == text.strip(" \t\f\n\r"))


@given(st.dictionaries(st.from_regex("[a-zA-Z][a-zA-Z0-9.]{0,20}", fullmatch=True), values, max_size=5))
def test_settings_are_read_as_they_were_written(settings: dict[str, str]) -> None:
    assert decode_java_properties(encode_java_properties(settings)) == settings


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\n\n# no\n ! nor this\r\nb = 2", {"a": "1", "b": "2"}),
        ("a:1\rb 2\nc", {"a": "1", "b": "2", "c": ""}),
        ("a=one \\\n   line", {"a": "one line"}),
        ("a\\=b=c=d\\u00e9\\t.", {"a=b": "c=dé\t."}),
        ("", {}),
    ],
)
def test_what_java_writes_is_read(text: str, settings: dict[str, str]) -> None:
    assert decode_java_properties(text.encode()) == settings


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(MessageRefused):
        decode_java_properties(b"a=\xff")
