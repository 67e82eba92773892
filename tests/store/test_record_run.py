"""Records that are read together are checked as one by one."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.checksum import CHECKSUM_BYTES, checksum_property
from millstream.protocol.record import encode_record, verify_record
from millstream.store.consume_queue import ENTRY
from millstream.store.record_run import Place, copy_checked_run, copy_records, is_checked_run, number_at

BODIES = st.lists(st.binary(max_size=60), min_size=1, max_size=6)
HOST = Address("192.0.2.7", 10911)
FIRST_OFFSET, LOG_OFFSET = 1200, 1 << 31


def laid_out(bodies: list[bytes], gap: bytes = b"") -> tuple[bytes, list[Place]]:
    """The log from `LOG_OFFSET` on, with `gap` between the records."""
    log, places = b"", []
    for number, body in enumerate(bodies):
        record = encode_record(
            OutgoingMessage("t", body, {"TAGS": "red"}), queue_id=0, queue_offset=FIRST_OFFSET + number,
            log_offset=LOG_OFFSET + len(log), store_timestamp_ms=1_700_000_000_000, store_host=HOST,
        )  # fmt: skip
        places.append((LOG_OFFSET + len(log), len(record), 7))
        log += record + gap
    return log, places


def records_of(log: bytes, places: list[Place]) -> bytes:
    return b"".join(log[place - LOG_OFFSET : place - LOG_OFFSET + size] for place, size, _ in places)


@given(BODIES, st.binary(max_size=9))
def test_whole_records_are_copied_and_found_whole(bodies: list[bytes], gap: bytes) -> None:
    log, places = laid_out(bodies, gap)
    data = copy_records(memoryview(b"before" + log), LOG_OFFSET - 6, places, 1 << 20)
    assert data == records_of(log, places)
    assert is_checked_run(data, places, FIRST_OFFSET)


@given(BODIES, st.data())
def test_one_changed_byte_is_found_as_by_a_look_at_each_record(bodies: list[bytes], data: st.DataObject) -> None:
    log, places = laid_out(bodies)
    run = bytearray(log)
    run[data.draw(st.integers(0, len(run) - 1))] ^= data.draw(st.integers(1, 255))
    pieces = [bytes(run[place - LOG_OFFSET : place - LOG_OFFSET + size]) for place, size, _ in places]
    assert not all(map(verify_record, pieces))
    assert not is_checked_run(bytes(run), places, FIRST_OFFSET)


@given(BODIES, st.data())
def test_whole_records_that_the_index_does_not_name_are_refused(bodies: list[bytes], data: st.DataObject) -> None:
    log, places = laid_out(bodies)
    assert not is_checked_run(log, places, FIRST_OFFSET + 1)
    assert not is_checked_run(log[:-1], places, FIRST_OFFSET)
    assert not is_checked_run(log + b"x", places, FIRST_OFFSET)
    number = data.draw(st.integers(0, len(places) - 1))
    place, size, code = places[number]
    for other in ((place + 1, size, code), (place, size + 1, code), (place, 0, code), (place, -1, code)):
        assert not is_checked_run(log, [*places[:number], other, *places[number + 1 :]], FIRST_OFFSET)


@given(BODIES, st.data())
def test_records_of_a_light_queue_are_checked_without_their_offset_there(
    bodies: list[bytes], data: st.DataObject
) -> None:
    log, places = laid_out(bodies)
    assert is_checked_run(log, places, -1)
    run = bytearray(log)
    run[data.draw(st.integers(0, len(run) - 1))] ^= data.draw(st.integers(1, 255))
    assert not is_checked_run(bytes(run), places, -1)
    place, size, code = places[-1]
    for other in ((place + 1, size, code), (place, size + 1, code)):
        assert not is_checked_run(log, [*places[:-1], other], -1)


def test_a_changed_record_with_a_checksum_of_its_own_is_not_the_one_that_the_index_names() -> None:
    log, places = laid_out([b"one"])
    changed = bytearray(log[:-CHECKSUM_BYTES])
    changed[27] ^= 1
    forged = bytes(changed) + checksum_property(crc32(changed))
    assert verify_record(forged)
    assert not is_checked_run(forged, places, FIRST_OFFSET)


@pytest.mark.parametrize(
    ("wrong", "max_bytes"),
    [
        pytest.param({}, 10, id="too many bytes"),
        pytest.param({1: (LOG_OFFSET + 9_000, 100, 0)}, 1 << 20, id="behind the view"),
        pytest.param({0: (LOG_OFFSET - 9, 100, 0)}, 1 << 20, id="before the view"),
        pytest.param({1: (LOG_OFFSET, 0, 0)}, 1 << 20, id="a lost record"),
    ],
)
def test_what_the_view_does_not_have_is_not_copied(wrong: dict[int, Place], max_bytes: int) -> None:
    log, places = laid_out([b"one", b"two"])
    assert copy_records(memoryview(log), LOG_OFFSET, places, 1 << 20) == log
    for number, place in wrong.items():
        places[number] = place
    assert copy_records(memoryview(log), LOG_OFFSET, places, max_bytes) is None


@given(st.binary(max_size=20), st.sampled_from([4, 8]), st.data())
def test_a_number_is_read_from_its_bytes_and_never_beyond_them(data: bytes, size: int, at: st.DataObject) -> None:
    place = at.draw(st.integers(0, 20))
    if place + size > len(data):
        with pytest.raises(IndexError):
            number_at(data, place, size)
    else:
        assert number_at(data, place, size) == int.from_bytes(data[place : place + size], "big")


def packed(places: list[Place]) -> bytes:
    return b"".join(ENTRY.pack(*place) for place in places)


numbers = st.one_of(st.integers(-3, 400), st.sampled_from([(1 << 31) - 1, -(1 << 31), 1 << 20]))


@given(BODIES, st.binary(max_size=9), st.data())
def test_packed_places_give_what_copying_and_checking_gives(
    bodies: list[bytes], gap: bytes, data: st.DataObject
) -> None:
    log, places = laid_out(bodies, gap)
    run = bytearray(b"before" + log)
    if data.draw(st.booleans()):
        run[data.draw(st.integers(0, len(run) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        number = data.draw(st.integers(0, len(places) - 1))
        place, size, code = places[number]
        moved, grown = data.draw(st.integers(-9, 9)), data.draw(numbers)
        places[number] = data.draw(st.sampled_from([(place + moved, size, code), (place, grown, code)]))
    if data.draw(st.booleans()):
        data.draw(st.randoms()).shuffle(places)
    max_bytes = data.draw(st.sampled_from([1 << 20, len(log), len(log) - 1, 0]))
    first = data.draw(st.sampled_from([FIRST_OFFSET, FIRST_OFFSET + 1, -1]))
    view, start = memoryview(run), LOG_OFFSET - 6
    copied = copy_records(view, start, places, max_bytes)
    wanted = copied if copied is not None and is_checked_run(copied, places, first) else None
    assert copy_checked_run(view, start, packed(places), max_bytes, first) == wanted
