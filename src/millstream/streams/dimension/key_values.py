"""The canonical form of key values: 32-bit words or bytes."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Flags", "KeyFamily", "KeyValues", "Texts", "Unsigned", "Words", "family_of", "key_values", "valid_flags"]

Unsigned = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_WORD_BITS: Final = 32
_WORD_MASK: Final = np.uint64(2**32 - 1)
_INT64_DIGITS: Final = 18
"""Decimal digits that every 64-bit number has room for."""

_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NS_PER_US: Final = 1_000


class KeyFamily(Enum):
    """Types whose values are compared with one another; the values are the words for errors."""

    BOOLEAN = "a BOOLEAN"
    NUMBER = "an integer or DECIMAL"
    FLOAT = "a FLOAT or DOUBLE"
    TEXT = "a STRING"
    BYTES = "BYTES"
    DATE = "a DATE"
    TIME = "a TIME"
    INSTANT = "a TIMESTAMP"
    DURATION = "an INTERVAL"


def family_of(data_type: pa.DataType) -> KeyFamily | None:
    """What values of the type are compared with; None for types that are no keys: nested ones and NULL."""
    types = pa.types
    if types.is_dictionary(data_type):
        return family_of(data_type.value_type)
    for family, belongs in (
        (KeyFamily.BOOLEAN, types.is_boolean),
        (KeyFamily.NUMBER, types.is_signed_integer),
        (KeyFamily.NUMBER, types.is_decimal128),
        (KeyFamily.FLOAT, lambda one: types.is_float32(one) or types.is_float64(one)),
        (KeyFamily.TEXT, lambda one: types.is_string(one) or types.is_large_string(one)),
        (KeyFamily.BYTES, lambda one: types.is_binary(one) or types.is_large_binary(one)),
        (KeyFamily.DATE, types.is_date32),
        (KeyFamily.TIME, types.is_time),
        (KeyFamily.INSTANT, types.is_timestamp),
        (KeyFamily.DURATION, types.is_duration),
    ):
        if belongs(data_type):
            return family
    return None


class Words:
    """Values of fixed length: `words` holds so many numbers below 2^32 for each, the rest being zero.

    Two values are equal where their words are, whatever the number of words that are left out because they are zero.
    """

    def __init__(self, words: Unsigned, valid: Flags) -> None:
        self.words = words
        self.valid = valid

    def take(self, places: npt.NDArray[np.int64]) -> Words:
        """The values at these places."""
        return Words(self.words[places], self.valid[places])

    def same(self, other: KeyValues) -> Flags:
        """Which values equal those of the other at the same place."""
        assert isinstance(other, Words)
        mine, others = self.words, other.words
        common = min(mine.shape[1], others.shape[1])
        equal: Flags = (mine[:, :common] == others[:, :common]).all(axis=1)
        for longer in (mine, others):
            equal &= (longer[:, common:] == 0).all(axis=1)
        return equal


class Texts:
    """Values of any length, as Arrow holds bytes."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array.cast(pa.large_binary()) if not pa.types.is_large_binary(array.type) else array
        self.valid = valid_flags(array)

    @property
    def spans(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """All bytes, where each value starts and how many bytes it has; NULL has some length."""
        _, offsets, data = self.array.buffers()
        count = len(self.array)
        ends = np.frombuffer(offsets, np.int64, count + 1, self.array.offset * 8)
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        return content, ends[:-1], np.diff(ends)

    def take(self, places: npt.NDArray[np.int64]) -> Texts:
        """The values at these places."""
        return Texts(self.array.take(pa.array(places)))

    def same(self, other: KeyValues) -> Flags:
        """Which values equal those of the other at the same place."""
        assert isinstance(other, Texts)
        return np.asarray(pc.fill_null(pc.equal(self.array, other.array), False))


KeyValues = Words | Texts


def key_values(array: pa.Array, family: KeyFamily) -> KeyValues:
    """The values of an array whose type is of that family."""
    if family in (KeyFamily.TEXT, KeyFamily.BYTES):
        return Texts(array)
    valid = valid_flags(array)
    if family is KeyFamily.FLOAT:
        numbers = _content(array.cast(pa.float64()), np.float64) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return Words(_words_of(numbers.view(np.uint64)), valid)
    if pa.types.is_decimal(array.type):
        return Words(_decimal_words(array), valid)
    if family in (KeyFamily.INSTANT, KeyFamily.TIME, KeyFamily.DURATION):
        return Words(_time_words(array), valid)
    integers = array.cast(pa.int32()) if family is KeyFamily.DATE else array
    return Words(_words_of(_zigzag(_content(integers.cast(pa.int64()), np.int64))), valid)


def valid_flags(array: pa.Array) -> Flags:
    """Which values are not NULL."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _content(array: pa.Array, dtype: Any) -> Any:
    """The numbers of an array; where it has NULL, any number."""
    buffer = array.buffers()[1]
    size = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, len(array), array.offset * size) if len(array) else np.empty(0, dtype)


def _zigzag(numbers: npt.NDArray[np.int64]) -> Unsigned:
    """Numbers near zero as small ones without a sign, so that their upper words are zero."""
    folded: Unsigned = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    return folded


def _words_of(numbers: Unsigned, count: int = 2) -> Unsigned:
    words = np.zeros((len(numbers), count), np.uint64)
    words[:, 0] = numbers & _WORD_MASK
    words[:, 1] = numbers >> np.uint64(_WORD_BITS)
    return words


def _time_words(array: pa.Array) -> Unsigned:
    """Microseconds, and the nanoseconds beyond them, so that equal times of different units are equal."""
    unit = array.type.unit
    narrow = pa.types.is_time32(array.type)
    numbers = _content(array.cast(pa.int32()).cast(pa.int64()) if narrow else array.cast(pa.int64()), np.int64)
    if unit != "ns":
        return _words_of(_zigzag(numbers * _MICROSECONDS[unit]))
    words = _words_of(_zigzag(numbers // _NS_PER_US), 3)
    words[:, 2] = (numbers % _NS_PER_US).astype(np.uint64)
    return words


def _decimal_words(array: pa.Array) -> Unsigned:
    """The digits without the zeros at the end of the fraction, and how many digits of the fraction are left.

    An integer is thereby equal to a DECIMAL without a fraction.
    """
    scale = array.type.scale
    if scale < 0:
        array, scale = array.cast(pa.decimal128(38, 0)), 0
    pairs = _content(pa.Array.from_buffers(pa.binary(16), len(array), array.buffers(), offset=array.offset), "V16")
    halves = pairs.view(np.int64).reshape(-1, 2)
    digits = halves[:, 0].copy()
    wide = np.flatnonzero(halves[:, 1] != digits >> 63)
    left = np.full(len(digits), scale, np.int64)
    for _ in range(scale):
        shorter = (left > 0) & (digits % 10 == 0)
        if not shorter.any():
            break
        digits[shorter] //= 10
        left[shorter] -= 1
    words = _words_of(_zigzag(digits), 5)
    words[:, 4] = left.astype(np.uint64)
    for place in wide:
        words[place] = _wide_words(int(halves[place, 1]) << 64 | int(halves[place, 0]) & (2**64 - 1), scale)
    return words


def _wide_words(digits: int, scale: int) -> list[int]:
    """One DECIMAL of more digits than a 64-bit number has."""
    while scale and digits % 10 == 0:
        digits, scale = digits // 10, scale - 1
    folded = 2 * digits if digits >= 0 else -2 * digits - 1
    return [folded >> (_WORD_BITS * place) & (2**_WORD_BITS - 1) for place in range(4)] + [scale]
