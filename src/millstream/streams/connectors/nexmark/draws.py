"""Random numbers that depend on a seed and an event's number alone, so that any range of events can be made anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Draws"]

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_MIXES = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_LETTERS = 26
_FIRST_LETTER = ord("a")


class Draws:
    """Draws for the events `numbers`. Each `purpose` is a sequence of its own. Mixed as in Steele's SplitMix64."""

    def __init__(self, seed: int, numbers: Integers) -> None:
        self._start = _mix(numbers.astype(np.uint64) + _steps(seed))

    def hashes(self, purpose: int) -> Hashes:
        """64 even bits each."""
        return _mix(self._start + _steps(purpose))

    def below(self, purpose: int, bound: int | Integers) -> Integers:
        """Whole numbers from 0 up to but without `bound`."""
        positive = (self.hashes(purpose) >> np.uint64(1)).astype(np.int64)
        return np.asarray(positive % np.maximum(bound, 1), dtype=np.int64)

    def fractions(self, purpose: int) -> npt.NDArray[np.float64]:
        """Numbers from 0 up to but without 1."""
        return (self.hashes(purpose) >> np.uint64(11)).astype(np.float64) / float(1 << 53)

    def letters(self, purpose: int, lengths: Integers) -> pa.Array:
        """Texts of small letters of those lengths."""
        longest = int(lengths.max(initial=0))
        blocks = -(-longest // 8)
        if blocks == 0:
            return pa.array([""] * len(lengths), pa.string())
        steps = np.arange(1, blocks + 1, dtype=np.uint64) * np.uint64(_STEP)
        several = _mix(self.hashes(purpose)[:, None] + steps[None, :])
        drawn = several.view(np.uint8).reshape(len(lengths), blocks * 8) % _LETTERS + _FIRST_LETTER
        kept = np.arange(blocks * 8)[None, :] < lengths[:, None]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        texts = drawn[kept].astype(np.uint8)
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets.tobytes()), pa.py_buffer(texts.tobytes()))


def _steps(count: int) -> np.uint64:
    return np.uint64(count * _STEP & _MASK)


def _mix(values: Hashes) -> Hashes:
    with np.errstate(over="ignore"):
        for shift, factor in _MIXES:
            values = (values ^ (values >> shift)) * factor
        return values ^ (values >> _LAST_SHIFT)
