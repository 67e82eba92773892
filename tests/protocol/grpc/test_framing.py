from __future__ import annotations

import gzip
import zlib
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.grpc.framing import (
    PREFIX,
    PREFIX_BYTES,
    InflatedTooLarge,
    encode_status_message,
    inflate_message,
    parse_timeout_s,
)


def test_a_prefix_is_a_flag_and_a_length() -> None:
    assert PREFIX.size == PREFIX_BYTES
    assert PREFIX.pack(1, 258) == b"\x01\x00\x00\x01\x02"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2H", 7200.0), ("3M", 180.0), ("4S", 4.0), ("500m", 0.5), ("7u", 7e-6), ("9n", 9e-9), ("0S", 0.0),
     ("99999999H", 99_999_999 * 3600.0)],
)  # fmt: skip
def test_a_timeout_is_read_in_each_of_its_units(text: str, seconds: float) -> None:
    assert parse_timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "S", "5", "5s", "5h", "-1S", "+1S", "1.5S", " 1S", "1S ", "123456789S", "１S", "²S"]
)
def test_what_is_no_timeout_is_none(text: str) -> None:
    assert parse_timeout_s(text) is None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_of_a_status_are_printable_ascii_and_are_read_back(words: str) -> None:
    encoded = encode_status_message(words)
    assert all(0x20 <= ord(one) <= 0x7E for one in encoded)
    assert unquote(encoded) == words


def test_ordinary_words_of_a_status_stay_as_they_are() -> None:
    assert encode_status_message("No such topic: orders.") == "No such topic: orders."
    assert encode_status_message("100 % é\n") == "100 %25 %C3%A9%0A"


@given(st.binary(max_size=2000), st.integers(0, 9))
def test_a_message_of_gzip_is_unpacked(message: bytes, level: int) -> None:
    assert inflate_message(gzip.compress(message, level), len(message)) == message


def test_a_message_that_grows_beyond_the_limit_is_refused_before_it_is_there() -> None:
    bomb = gzip.compress(bytes(1_000_000))
    assert inflate_message(bomb, 1_000_000) == bytes(1_000_000)
    with pytest.raises(InflatedTooLarge):
        inflate_message(bomb, 999_999)
    with pytest.raises(InflatedTooLarge):
        inflate_message(bomb, 0)


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", gzip.compress(b"hello")[:-1], gzip.compress(b"hello") + b"x", zlib.compress(b"hello"),
     gzip.compress(b"a") + gzip.compress(b"b"), gzip.compress(b"hello")[:-8] + bytes(8)],
    ids=["nothing", "garbage", "cut off", "with more behind", "zlib", "two members", "a wrong sum"],
)  # fmt: skip
def test_what_is_no_gzip_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        inflate_message(data, 100)
    assert not isinstance(refused.value, InflatedTooLarge)
