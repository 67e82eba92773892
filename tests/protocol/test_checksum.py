from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.checksum import MAX_FOLLOWING_BYTES, combine_crc32


@given(st.binary(max_size=300), st.binary(max_size=3000))
def test_the_checksum_of_two_parts_is_that_of_their_join(first: bytes, second: bytes) -> None:
    assert combine_crc32(crc32(first), crc32(second), len(second)) == crc32(first + second)


@pytest.mark.parametrize("size", [255, 256, 65_535, 65_536, 65_537, 4_194_304, MAX_FOLLOWING_BYTES])
def test_the_second_part_may_be_long(size: int) -> None:
    second = bytes(range(251)) * (size // 251 + 1)
    second = second[:size]
    assert combine_crc32(crc32(b"head"), crc32(second), size) == crc32(second, crc32(b"head"))


@pytest.mark.parametrize("size", [-1, MAX_FOLLOWING_BYTES + 1])
def test_a_length_out_of_bounds_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="possible"):
        combine_crc32(1, 2, size)
