"""FLOAT in Python: what numpy's numbers of 32 bits are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.functions.float32 import single


@given(st.floats())
def test_a_float_is_the_nearest_number_of_32_bits(value: float) -> None:
    with np.errstate(over="ignore"):
        expected = float(np.float32(value))
    assert np.array_equal(single(value), expected, equal_nan=True)
