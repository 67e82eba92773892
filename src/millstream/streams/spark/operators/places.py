"""Which partition of Spark takes a bucket: numbers that Spark's hash partitioning sends where we want them."""

from __future__ import annotations

from functools import cache

__all__ = ["place_numbers"]

_SEED = 42
"""Spark's seed for hash partitioning."""

_MASK = 0xFFFFFFFF
_SEARCHED = 100_000


@cache
def place_numbers(partitions: int) -> tuple[int, ...]:
    """For each partition an INT whose hash (Murmur3 over 32 bits, as in Spark) leads there."""
    found: dict[int, int] = {}
    for number in range(_SEARCHED):
        found.setdefault(_murmur3(number) % partitions, number)
        if len(found) == partitions:
            return tuple(found[place] for place in range(partitions))
    raise ValueError(f"no numbers for {partitions} partitions")


def _murmur3(number: int) -> int:
    """Murmur3_x86_32 of one 32-bit word, as a signed number."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = _rotated(mixed, 15) * 0x1B873593 & _MASK
    value = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
