"""Chunks: any records come back byte for byte, and no cut or changed byte is served."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunk_records import ChunkRecord, part_of
from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.tiered.chunk import (
    TAIL_BYTES,
    ChunkFooter,
    decode_block,
    decode_footer,
    decode_key_table,
    encode_chunk,
    find_block,
    find_keys,
    footer_range,
)
from millstream.tiered.queue_records import BLOCK_BYTES, PartRecords

HOST = Address("127.0.0.1", 10911)


def record(
    queue_offset: int, body: bytes, *, log_offset: int = 0, topic: str = "t", keys: tuple[int, ...] = ()
) -> ChunkRecord:
    message = OutgoingMessage(topic, body, {"UNIQ_KEY": f"id{queue_offset}"})
    stored_ms = 1000 + queue_offset
    data = encode_record(
        message,
        queue_id=0,
        queue_offset=queue_offset,
        log_offset=log_offset,
        store_timestamp_ms=stored_ms,
        store_host=HOST,
    )
    return ChunkRecord(data, queue_offset, log_offset, stored_ms, keys)


def encode(parts: list[PartRecords]) -> tuple[bytes, ChunkFooter]:
    return encode_chunk(parts, cluster="c", broker="b", epoch=3, log_begin=0, log_end=1 << 40)


def read_footer(data: bytes) -> ChunkFooter:
    tail = data[-TAIL_BYTES:]
    start, end = footer_range("key", len(data), tail)
    return decode_footer("key", data[start:end], tail)


def read_part(data: bytes, footer: ChunkFooter, number: int) -> list[bytes]:
    found: list[bytes] = []
    for info in footer.parts[number].blocks:
        frame = data[info.position : info.position + info.size_bytes]
        found += map(bytes, decode_block("key", info, frame))
    return found


bodies = st.one_of(st.binary(max_size=200), st.integers(0, 300_000).map(lambda size: b"x" * size))


@given(st.lists(st.lists(st.tuples(bodies, st.integers(1, 5)), min_size=1, max_size=8), min_size=1, max_size=4))
def test_any_records_come_back_with_their_bytes_and_offsets(queues: list[list[tuple[bytes, int]]]) -> None:
    given_records, log_offset = [], 0
    for number, items in enumerate(queues):
        records, queue_offset = [], 0
        for body, step in items:
            records.append(record(queue_offset, body, log_offset=log_offset, topic=f"t{number}"))
            queue_offset += step
            log_offset += len(records[-1].data)
        given_records.append(records)
    data, footer = encode([part_of(f"t{number}", 0, records) for number, records in enumerate(given_records)])
    assert read_footer(data) == footer
    for number, records in enumerate(given_records):
        assert read_part(data, footer, number) == [one.data for one in records]
        described = footer.parts[number]
        assert (described.topic, described.queue_id) == (f"t{number}", 0)
        assert described.first_queue_offset == records[0].queue_offset
        assert described.next_queue_offset == records[-1].queue_offset + 1
        for one in records:
            block = find_block(described, one.queue_offset)
            assert block is not None
            info = described.blocks[block]
            assert info.first_queue_offset <= one.queue_offset < info.next_queue_offset


def test_blocks_end_at_their_size_and_a_record_longer_than_that_has_its_own() -> None:
    records = [record(n, b"x" * 1000) for n in range(600)] + [record(600, b"y" * 3_000_000), record(601, b"z")]
    data, footer = encode([part_of("t", 0, records)])
    blocks = footer.parts[0].blocks
    assert len(blocks) >= 4
    assert all(block.raw_bytes <= BLOCK_BYTES or block.records == 1 for block in blocks)
    assert len(data) < sum(len(one.data) for one in records) / 4


def test_an_offset_in_a_hole_leads_to_the_block_that_follows() -> None:
    records = [record(n, b"x" * 100_000) for n in (5, 6, 7, 100, 101, 102)]
    _, footer = encode([part_of("t", 0, records)])
    [part] = footer.parts
    assert find_block(part, 0) == 0
    for missing in range(8, 100):
        number = find_block(part, missing)
        assert number is not None
        assert part.blocks[number].next_queue_offset > 100
    assert find_block(part, 103) is None


def test_keys_lead_to_their_records_and_to_no_others() -> None:
    records = [record(n, b"x" * 50_000, keys=(n % 7, 1000 + n)) for n in range(40)]
    data, footer = encode([part_of("t", 0, records)])
    [part] = footer.parts
    assert part.keys is not None
    table = decode_key_table("key", part.keys, data[part.keys.position : part.keys.position + part.keys.size_bytes])
    for n, one in enumerate(records):
        [(block, number)] = find_keys(table, 1000 + n)
        info = part.blocks[block]
        frame = data[info.position : info.position + info.size_bytes]
        assert bytes(decode_block("key", info, frame)[number]) == one.data
    assert len(find_keys(table, 3)) == len(range(3, 40, 7))
    assert find_keys(table, 999) == []


def test_records_out_of_order_and_chunks_without_records_are_refused() -> None:
    with pytest.raises(ValueError, match="comes behind"):
        encode([part_of("t", 0, [record(1, b"a"), record(1, b"b")])])
    with pytest.raises(ValueError, match="no records"):
        encode([PartRecords("t", 0)])
    with pytest.raises(ValueError, match="one part"):
        encode([])


@lru_cache(maxsize=1)
def small_chunk() -> bytes:
    parts = [part_of(f"t{q}", q, [record(n, b"body" * n, keys=(n,)) for n in range(4)]) for q in range(3)]
    return encode(parts)[0]


def read_all(data: bytes) -> list[bytes]:
    footer = read_footer(data)
    found = [one for number in range(len(footer.parts)) for one in read_part(data, footer, number)]
    for part in footer.parts:
        if part.keys is not None:
            decode_key_table("key", part.keys, data[part.keys.position : part.keys.position + part.keys.size_bytes])
    return found


def test_each_cut_is_found() -> None:
    data = small_chunk()
    for length in range(len(data)):
        with pytest.raises(StoreError, match="damaged"):
            read_all(data[:length])


def test_each_changed_byte_is_found_or_changes_nothing_that_is_read() -> None:
    data, whole = small_chunk(), read_all(small_chunk())
    generator = random.Random(7)
    for position in range(len(data)):
        altered = bytearray(data)
        altered[position] ^= 1 << generator.randrange(8)
        if position < 8:
            # The first bytes name the format for people; nothing is read by them.
            assert read_all(bytes(altered)) == whole
            continue
        with pytest.raises(StoreError, match="damaged"):
            read_all(bytes(altered))
