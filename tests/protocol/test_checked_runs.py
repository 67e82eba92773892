"""Records that stand together are checked as one by one."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.checksum import CHECKSUM_BYTES, checksum_property, find_checked
from millstream.protocol.record import passes_checksum

BODIES = st.lists(st.binary(max_size=60), min_size=1, max_size=6)


def record(body: bytes) -> bytes:
    return body + checksum_property(crc32(body))


@given(BODIES)
def test_whole_records_are_found_as_they_are(bodies: list[bytes]) -> None:
    records = [record(body) for body in bodies]
    assert find_checked(b"".join(records), [len(one) for one in records]) == records


@given(BODIES, st.data())
def test_one_changed_byte_is_found_as_by_a_look_at_each_record(bodies: list[bytes], data: st.DataObject) -> None:
    records = [record(body) for body in bodies]
    run = bytearray(b"".join(records))
    place = data.draw(st.integers(0, len(run) - 1))
    run[place] ^= data.draw(st.integers(1, 255))
    sizes = [len(one) for one in records]
    pieces, at = [], 0
    for size in sizes:
        pieces.append(bytes(run[at : at + size]))
        at += size
    are_whole = all(passes_checksum(memoryview(piece)) for piece in pieces)
    assert not are_whole
    assert find_checked(bytes(run), sizes) is None


def test_sizes_that_are_not_those_of_the_records_find_nothing() -> None:
    run = record(b"one") + record(b"two")
    assert find_checked(run, [3 + CHECKSUM_BYTES - 1, 3 + CHECKSUM_BYTES + 1]) is None
