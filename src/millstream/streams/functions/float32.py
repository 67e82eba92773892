"""Arithmetic on 32-bit floats, which Python lacks."""

from __future__ import annotations

import math
import struct

__all__ = ["single"]

_SINGLE = struct.Struct("<f")


def single(value: float) -> float:
    """The nearest FLOAT; infinity beyond the largest one."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
