from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.messages.batch import decode_batch, encode_batch_item

word = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=10)
items = st.tuples(st.binary(max_size=50), st.dictionaries(word, word, max_size=4), st.integers(-5, 5))

# size 34, magic 0, CRC 0, flag 7, body "hello", properties "TAGS\x01x\x02"
GOLDEN = bytes.fromhex("0000002200000000000000000000000700000005") + b"hello" + b"\0\7TAGS\1x\2"


def test_an_item_is_laid_out_as_written_by_hand() -> None:
    assert encode_batch_item(b"hello", {"TAGS": "x"}, flag=7) == GOLDEN
    assert decode_batch(GOLDEN) == [(b"hello", {"TAGS": "x"}, 7)]


@given(st.lists(items, max_size=6))
def test_a_batch_reads_as_it_was_written(batch: list[tuple[bytes, dict[str, str], int]]) -> None:
    encoded = b"".join(encode_batch_item(body, properties, flag=flag) for body, properties, flag in batch)
    assert decode_batch(encoded) == batch


def test_the_last_mark_of_the_properties_may_be_missing() -> None:
    shorter = bytearray(GOLDEN[:-1])
    shorter[3] -= 1
    shorter[26] -= 1
    assert decode_batch(bytes(shorter)) == [(b"hello", {"TAGS": "x"}, 7)]


@given(st.integers(0, len(GOLDEN) - 1))
def test_a_batch_cut_anywhere_is_refused(length: int) -> None:
    if length == 0:
        assert decode_batch(b"") == []
        return
    with pytest.raises(MessageRefused) as refused:
        decode_batch(GOLDEN + GOLDEN[:length])
    assert refused.value.name == "MESSAGE_MALFORMED"


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_loop_or_fail_otherwise(batch: bytes) -> None:
    with suppress(MessageRefused):
        decode_batch(batch)


@pytest.mark.parametrize("size", ["00000000", "ffffffde", "00000021", "7fffffff"])
def test_a_size_that_does_not_fit_is_refused(size: str) -> None:
    with pytest.raises(MessageRefused):
        decode_batch(bytes.fromhex(size) + GOLDEN[4:])


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(MessageRefused) as refused:
        encode_batch_item(b"x", {"a": "x" * 32768})
    assert refused.value.name == "PROPERTIES_TOO_LARGE"
