"""A scan reads ranges of a queue's objects whole: each block once, in few requests, verified."""

from __future__ import annotations

import pytest
from crash.faulty_objects import FaultyObjects, ObjectFault

from chunk_records import ChunkRecord, part_of
from millstream.model.errors import MillstreamError
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record, outline_record
from millstream.tiered import cold_scan
from millstream.tiered.chunk import ChunkFooter, encode_chunk
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.cold_scan import ColdScan
from millstream.tiered.queue_records import BLOCK_BYTES

KEY = "ms1/c/b/log/0/00000.msc"
HOST = Address("127.0.0.1", 10911)
COUNT = 60
FIRST = 1000


def record(topic: str, queue_offset: int) -> ChunkRecord:
    body = bytes([queue_offset % 251]) * (BLOCK_BYTES // 4)
    data = encode_record(
        OutgoingMessage(topic, body, {}),
        queue_id=0,
        queue_offset=queue_offset,
        log_offset=queue_offset,
        store_timestamp_ms=queue_offset,
        store_host=HOST,
    )
    return ChunkRecord(data, queue_offset, queue_offset, queue_offset)


@pytest.fixture
def chunk() -> tuple[FaultyObjects, ColdRange, ChunkFooter]:
    """An object of two topics, and the range of the second."""
    parts = [part_of(topic, 0, [record(topic, FIRST + one) for one in range(COUNT)]) for topic in ("other", "t")]
    data, footer = encode_chunk(parts, cluster="c", broker="b", epoch=0, log_begin=0, log_end=1)
    objects = FaultyObjects()
    objects.put(KEY, data)
    objects.calls.clear()
    return objects, ColdRange(FIRST, FIRST + COUNT, 0, 0, KEY, len(data)), footer


def offsets(scan: ColdScan, where: ColdRange, begin: int, end: int) -> list[int]:
    return [
        outline_record(one).queue_offset for block in scan.blocks("t", 0, where, begin, end) for one in block.records
    ]


def test_a_whole_range_is_one_request_behind_that_for_the_footer(
    chunk: tuple[FaultyObjects, ColdRange, ChunkFooter],
) -> None:
    objects, where, _ = chunk
    assert offsets(ColdScan(objects), where, FIRST, FIRST + COUNT) == [*range(FIRST, FIRST + COUNT)]
    assert objects.calls == ["get_many", "get_many"]


def test_the_blocks_that_hold_a_part_of_the_range_are_read_and_no_others(
    chunk: tuple[FaultyObjects, ColdRange, ChunkFooter],
) -> None:
    objects, where, footer = chunk
    scan, blocks = ColdScan(objects), footer.parts[1].blocks
    begin, end = blocks[2].first_queue_offset + 1, blocks[5].first_queue_offset + 1
    found = offsets(scan, where, begin, end)
    assert found == [*range(blocks[2].first_queue_offset, blocks[5].next_queue_offset)]
    assert offsets(scan, where, FIRST + COUNT, FIRST + COUNT + 1) == []
    # The footer is read once for all slices of the object.
    assert objects.calls == ["get_many", "get_many"]


def test_requests_are_cut_where_they_would_grow_too_large(
    chunk: tuple[FaultyObjects, ColdRange, ChunkFooter], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, where, footer = chunk
    blocks = footer.parts[1].blocks
    monkeypatch.setattr(cold_scan, "REQUEST_BYTES", sum(block.size_bytes for block in blocks[:3]))
    assert offsets(ColdScan(objects), where, FIRST, FIRST + COUNT) == [*range(FIRST, FIRST + COUNT)]
    assert len(objects.calls) - 1 >= len(blocks) // 3


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        ([None, ObjectFault.ALTERED], "CHUNK_DAMAGED"),
        ([None, ObjectFault.SHORT], "OBJECT_STORE_AWAY"),
        ([ObjectFault.DENIED], "OBJECT_STORE_DENIED"),
    ],
)
def test_what_is_not_as_it_was_stored_is_an_error_and_no_record(
    chunk: tuple[FaultyObjects, ColdRange, ChunkFooter], plan: list[ObjectFault | None], name: str
) -> None:
    objects, where, _ = chunk
    objects.plan.extend(plan)
    with pytest.raises(MillstreamError) as raised:
        offsets(ColdScan(objects), where, FIRST, FIRST + COUNT)
    assert raised.value.name == name


def test_a_row_that_leads_to_an_object_of_other_queues_or_another_length_is_damage(
    chunk: tuple[FaultyObjects, ColdRange, ChunkFooter],
) -> None:
    objects, where, _ = chunk
    for topic, size_bytes in (("missing", where.size_bytes), ("t", where.size_bytes + 1), ("t", where.size_bytes - 1)):
        wrong = ColdRange(FIRST, FIRST + COUNT, 0, 0, KEY, size_bytes)
        with pytest.raises(MillstreamError) as raised:
            list(ColdScan(objects).blocks(topic, 0, wrong, FIRST, FIRST + COUNT))
        assert raised.value.name == "CHUNK_DAMAGED"
