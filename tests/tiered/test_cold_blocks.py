"""The cache of cold blocks keeps to its budget of memory."""

from __future__ import annotations

import gc
import tracemalloc

from crash.faulty_objects import FaultyObjects

from chunk_records import ChunkRecord, part_of
from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.tiered.chunk import encode_chunk
from millstream.tiered.cold_blocks import ColdBlocks
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.cold_work import WorkHere

KEY = "ms1/c/b/log/0/00000.msc"
HOST = Address("127.0.0.1", 10911)
COUNT = 30_000
BUDGET_BYTES = 8 * 1024 * 1024


def test_blocks_of_small_messages_take_no_more_memory_than_the_budget() -> None:
    records = [
        encode_record(
            OutgoingMessage("t", b"%d" % offset, {}),
            queue_id=0,
            queue_offset=offset,
            log_offset=offset,
            store_timestamp_ms=0,
            store_host=HOST,
        )
        for offset in range(COUNT)
    ]
    part = part_of("t", 0, [ChunkRecord(record, at, at, 0) for at, record in enumerate(records)])
    data, footer = encode_chunk([part], cluster="c", broker="b", epoch=0, log_begin=0, log_end=1)
    objects = FaultyObjects()
    objects.put(KEY, data)
    blocks, where = ColdBlocks(objects, WorkHere(objects), BUDGET_BYTES), ColdRange(0, COUNT, 0, 0, KEY, len(data))
    tracemalloc.start()
    try:
        for block in footer.parts[0].blocks:
            blocks.fetch("t", 0, where, block.first_queue_offset)
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert BUDGET_BYTES * 0.5 < kept_bytes < BUDGET_BYTES * 1.15
