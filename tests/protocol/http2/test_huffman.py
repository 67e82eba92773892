from __future__ import annotations

import pytest
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.http2.huffman import decode, encode


def bits_of(*codes: tuple[int, int]) -> bytes:
    """Codes with their lengths one behind the other; they have to fill whole bytes."""
    digits = "".join(format(code, f"0{length}b") for code, length in codes)
    assert len(digits) % 8 == 0
    return int(digits, 2).to_bytes(len(digits) // 8, "big")


@pytest.mark.parametrize(
    ("text", "coded"),
    [
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"custom-key", "25a849e95ba97d7f"),
        (b"custom-value", "25a849e95bb8e8b4bf"),
        (b"302", "6402"),
        (b"private", "aec3771a4b"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        (b"307", "640eff"),
        (b"gzip", "9bd9ab"),
        (b"", ""),
    ],
)
def test_strings_of_the_examples_are_coded_as_there(text: bytes, coded: str) -> None:
    assert encode(text).hex() == coded
    assert decode(bytes.fromhex(coded)) == text


@pytest.mark.parametrize("symbol", range(256))
def test_each_byte_has_its_code_of_appendix_b(symbol: int) -> None:
    length = REQUEST_CODES_LENGTH[symbol]
    padding = -length % 8
    expected = bits_of((REQUEST_CODES[symbol], length), *[((1 << padding) - 1, padding)][: padding > 0])
    assert encode(bytes((symbol,))) == expected
    assert decode(expected) == bytes((symbol,))


@given(st.binary(max_size=400))
def test_a_text_comes_back(text: bytes) -> None:
    assert decode(encode(text)) == text


@given(st.binary(max_size=60))
def test_bytes_are_refused_or_are_the_one_code_of_their_text(data: bytes) -> None:
    try:
        text = decode(data)
    except ValueError:
        return
    assert encode(text) == data


@given(st.binary(max_size=60))
def test_a_text_is_not_longer_than_eight_fifths_of_its_code(data: bytes) -> None:
    try:
        text = decode(data)
    except ValueError:
        return
    assert 5 * len(text) <= 8 * len(data)


# The code of "a" is 00011, that of "0" 00000, that of "&" 11111000.
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\xff\xff\xff\xff", "end of the string is coded"),
        (bits_of((0x3, 5), (0x3FFFFFFF, 30), (0x1F, 5)), "end of the string is coded"),
        (b"\xff", "padding"),
        (bits_of((0x3, 5), (0x7, 3)) + b"\xff", "padding"),
        (bits_of((0x3, 5), (0x6, 3)), "padding"),
        (bits_of((0x3, 5), (0x0, 3)), "padding"),
        (b"\xfe", "padding"),
    ],
)
def test_a_string_without_its_end_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        decode(data)


def test_seven_ones_are_padding() -> None:
    # Two codes of 6 bits and one of 5 leave 7 bits of the third byte.
    assert decode(bits_of((0x18, 6), (0x19, 6), (0x0, 5), (0x7F, 7))) == b"/30"
