"""The hash of keys is the one that its description defines, for whatever stands beside a key in its batch."""

from __future__ import annotations

import hashlib
from decimal import Decimal

import pyarrow as pa
import pytest
from dimension_samples import SEED
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension.key_hash import MAX_PLAIN_BYTES, KeyHash
from millstream.streams.dimension.key_values import KeyFamily, key_values

WORD = 2**32


def numbers(name: bytes, count: int) -> list[int]:
    content = hashlib.shake_256(SEED + name).digest(count * 32)
    return [int.from_bytes(content[place : place + 8], "little") for place in range(0, len(content), 8)]


def defined(parts: list[list[int]]) -> int:
    """The hash of a key by its definition: `parts` are the words of each column."""
    lanes = numbers(b"first", 1)
    for column, words in enumerate(parts):
        factors = numbers(b"column %d" % column, 1 + MAX_PLAIN_BYTES // 4)
        for place, word in enumerate(words):
            for lane in range(4):
                lanes[lane] += word * factors[4 * place + lane]
    result = 0
    for lane in lanes:
        result = result << 32 | lane % 2**64 >> 32
    return result


def text_words(text: bytes) -> list[int]:
    length = len(text)
    if length > MAX_PLAIN_BYTES:
        text, length = hashlib.blake2b(text, digest_size=16, key=SEED).digest(), WORD - 1
    padded = text + bytes(-len(text) % 4)
    return [length, *(int.from_bytes(padded[at : at + 4], "little") for at in range(0, len(padded), 4))]


def integer_words(number: int) -> list[int]:
    folded = 2 * number if number >= 0 else -2 * number - 1
    return [folded % WORD, folded // WORD]


def hashes(columns: list[pa.Array], families: list[KeyFamily]) -> list[int]:
    values = [key_values(one, family) for one, family in zip(columns, families, strict=True)]
    found = KeyHash(SEED, len(columns)).of(values)
    return [int(high) << 64 | int(low) for high, low in zip(found.high, found.low, strict=True)]


@given(rows=st.lists(st.tuples(st.binary(max_size=700), st.integers(-(2**63), 2**63 - 1)), max_size=20))
@settings(deadline=None, max_examples=scaled(40))
def test_a_key_of_several_columns_has_the_hash_that_is_defined(rows: list[tuple[bytes, int]]) -> None:
    columns = [pa.array([text for text, _ in rows], pa.binary()), pa.array([number for _, number in rows], pa.int64())]
    wanted = [defined([text_words(text), integer_words(number)]) for text, number in rows]
    assert hashes(columns, [KeyFamily.BYTES, KeyFamily.NUMBER]) == wanted


def test_texts_of_every_length_have_the_same_hash_alone_and_beside_others_and_all_another_one() -> None:
    texts = ["x" * length for length in range(3 * MAX_PLAIN_BYTES)]
    together = hashes([pa.array(texts)], [KeyFamily.TEXT])
    assert together == [hashes([pa.array([text])], [KeyFamily.TEXT])[0] for text in texts]
    assert together == [defined([text_words(text.encode())]) for text in texts]
    assert len(set(together)) == len(texts)


@pytest.mark.parametrize(
    ("digits", "scale", "words"),
    [
        ("5.00", 2, [10, 0, 0, 0, 0]),
        ("500", -2, [1000, 0, 0, 0, 0]),
        ("-0.50", 2, [9, 0, 0, 0, 1]),
        ("0.00", 2, [0, 0, 0, 0, 0]),
        ("18446744073709551616", 0, [0, 0, 2, 0, 0]),
        ("-18446744073709551616.0", 1, [WORD - 1, WORD - 1, 1, 0, 0]),
    ],
)
def test_a_decimal_counts_without_the_zeros_at_its_end(digits: str, scale: int, words: list[int]) -> None:
    array = pa.array([Decimal(digits)], pa.decimal128(38, scale))
    assert hashes([array], [KeyFamily.NUMBER]) == [defined([words])]
