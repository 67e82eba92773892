"""Records with the numbers of another queue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.checksum import CHECKSUM_BYTES
from millstream.protocol.record import decode_record, encode_record, place_of, place_record, verify_record

HOSTS = [Address("127.0.0.1", 10911), Address("::1", 10911)]


def record(body: bytes, host: Address, **held: str) -> bytes:
    message = OutgoingMessage("t", body, held, born_host=host)
    return encode_record(
        message, queue_id=3, queue_offset=7, log_offset=99, store_timestamp_ms=1, store_host=Address("127.0.0.1", 1)
    )


@settings(deadline=None)
@given(body=st.binary(min_size=1, max_size=200), queue_id=st.integers(0, 1023), offset=st.integers(0, 2**62))
@pytest.mark.parametrize("host", HOSTS, ids=["IPv4", "IPv6"])
def test_only_the_place_changes_and_the_record_stays_whole(
    host: Address, body: bytes, queue_id: int, offset: int
) -> None:
    original = record(body, host, KEYS="k")
    moved = place_record(original, queue_id, offset)
    assert verify_record(moved)
    assert place_of(moved) == (queue_id, offset)
    before, after = decode_record(original), decode_record(moved)
    assert (after.body, after.properties, after.log_offset) == (before.body, before.properties, before.log_offset)


def test_a_record_in_its_place_is_not_copied() -> None:
    original = record(b"x", HOSTS[0])
    assert place_record(original, 3, 7) is original


def test_a_record_of_another_writer_gets_no_checksum() -> None:
    original = bytearray(record(b"x", HOSTS[0], KEYS="k"))
    end = len(original) - CHECKSUM_BYTES
    original[end:] = b"k" * CHECKSUM_BYTES
    assert bytes(place_record(bytes(original), 1, 1))[end:] == b"k" * CHECKSUM_BYTES
