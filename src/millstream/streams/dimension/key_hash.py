"""The keyed 128-bit hash of keys, vectorized over columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from millstream.streams.dimension.key_values import Flags, KeyValues, Texts, Unsigned, Words

__all__ = ["SEED_BYTES", "Hashed", "Hashes", "KeyHash"]

SEED_BYTES: Final = 32
"""Bytes of the secret that a table's hashes are made with."""

MAX_PLAIN_BYTES: Final = 256
"""Bytes up to which a text is hashed as it is; a longer one by its BLAKE2b digest."""

_LANES: Final = 4
_WORD_BYTES: Final = 4
_CLASS_WORDS: Final = (8, 16, 32, MAX_PLAIN_BYTES // _WORD_BYTES)
"""Texts of up to so many words are hashed together, so that one long text does not make all others long."""

_DIGEST_BYTES: Final = 16
_LONG: Final = np.uint64(2**32 - 1)
"""Stands in place of a long text's length."""

_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)
_HALF: Final = np.uint64(32)


class Hashes(NamedTuple):
    """128 bits for each key, and which keys have no part that is NULL."""

    high: Unsigned
    low: Unsigned
    valid: Flags


class Hashed(Protocol):
    """What makes hashes of keys."""

    def of(self, columns: Sequence[KeyValues]) -> Hashes:
        """The hash of each key; `columns` are its parts."""
        ...


class KeyHash:
    """Four lanes of multilinear hashing, each of which gives 32 bits.

    A key is a row of 32-bit words. A lane multiplies each word by a 64-bit number of its place, adds all up with one
    number more, modulo 2^64, and keeps the upper half. The numbers come out of `seed` by SHAKE-256. That family is
    strongly universal (Lemire and Kaser, "Strongly universal string hashing is fast", 2014): two different keys that
    were chosen without knowing the seed agree in all lanes with a probability of 2^-128. Texts count with their length,
    and those of more than `MAX_PLAIN_BYTES` by their keyed BLAKE2b digest of 128 bits.
    """

    def __init__(self, seed: bytes, columns: int) -> None:
        self._seed = seed
        self._first = self._numbers(b"first", 1)[0]
        count = 1 + MAX_PLAIN_BYTES // _WORD_BYTES
        self._factors = [self._numbers(b"column %d" % place, count) for place in range(columns)]

    def _numbers(self, name: bytes, count: int) -> Unsigned:
        content = hashlib.shake_256(self._seed + name).digest(count * _LANES * 8)
        return np.frombuffer(content, "<u8").reshape(count, _LANES)

    def of(self, columns: Sequence[KeyValues]) -> Hashes:
        """The hash of each key; `columns` are its parts."""
        valid = columns[0].valid.copy()
        lanes = np.tile(self._first, (len(valid), 1))
        for column, factors in zip(columns, self._factors, strict=True):
            valid &= column.valid
            if isinstance(column, Words):
                lanes += column.words @ factors[: column.words.shape[1]]
            else:
                lanes += self._text_lanes(column, factors)
        lanes >>= _HALF
        return Hashes(lanes[:, 0] << _HALF | lanes[:, 1], lanes[:, 2] << _HALF | lanes[:, 3], valid)

    def _text_lanes(self, texts: Texts, factors: Unsigned) -> Unsigned:
        content, starts, lengths = texts.spans
        lanes: Unsigned = lengths.astype(np.uint64)[:, None] * factors[0]
        if not len(lengths):
            return lanes
        first = int(starts[0])
        # Room behind the last text, because as many words are read of each as the longest has.
        padded = np.zeros(int(starts[-1] + lengths[-1]) - first + MAX_PLAIN_BYTES, np.uint8)
        padded[:-MAX_PLAIN_BYTES] = content[first : int(starts[-1] + lengths[-1])]
        counts = (lengths + _WORD_BYTES - 1) // _WORD_BYTES
        longest = int(counts.max())
        least = 0
        for limit in _CLASS_WORDS:
            chosen = (
                slice(None) if longest <= limit and not least else np.flatnonzero((counts > least) & (counts <= limit))
            )
            if isinstance(chosen, slice) or len(chosen):
                words = _text_words(padded, starts[chosen] - first, lengths[chosen])
                lanes[chosen] += words @ factors[1 : 1 + words.shape[1]]
            if longest <= limit:
                break
            least = limit
        else:
            self._add_long(texts, np.flatnonzero(counts > least), factors, lanes)
        return lanes

    def _add_long(self, texts: Texts, places: np.ndarray, factors: Unsigned, lanes: Unsigned) -> None:
        content, starts, lengths = texts.spans
        digests = bytearray()
        for place in places:
            text = content[starts[place] : starts[place] + lengths[place]]
            digests += hashlib.blake2b(text.tobytes(), digest_size=_DIGEST_BYTES, key=self._seed).digest()
        words = np.frombuffer(digests, "<u4").reshape(-1, _LANES).astype(np.uint64)
        lanes[places] = words @ factors[1 : 1 + _LANES] + _LONG * factors[0]


def _text_words(content: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Unsigned:
    """Texts as rows of words, with zeros behind the shorter ones."""
    width = (int(lengths.max()) + _WORD_BYTES - 1) // _WORD_BYTES
    if not width:
        return np.zeros((len(starts), 0), np.uint64)
    windows = np.lib.stride_tricks.as_strided(
        content, (len(content) - width * _WORD_BYTES + 1, width * _WORD_BYTES), (1, 1)
    )
    words = windows[starts].view("<u4")
    for place in range(int(lengths.min()) // _WORD_BYTES, width):
        words[:, place] &= _TAIL_MASKS[np.clip(lengths - place * _WORD_BYTES, 0, _WORD_BYTES)]
    wide: Unsigned = words.astype(np.uint64)
    return wide
