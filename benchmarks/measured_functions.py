"""The functions that `user_functions` measures; a module of its own, which workers import."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["by_arrow", "by_numpy", "by_row"]


def by_row(number: int) -> int:
    return number * 3 + 1


def by_arrow(numbers: pa.Int64Array) -> pa.Int64Array:
    return pc.add(pc.multiply(numbers, 3), 1)


def by_numpy(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return numbers * 3 + 1
