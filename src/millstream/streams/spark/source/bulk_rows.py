"""Selects a reader's rows from a bulk lane response."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from millstream.client.bulk.fetched import FetchedBatch
from millstream.streams.spark.source.position import Slice

__all__ = ["keep_rows"]

_log = logging.getLogger(__name__)

_OFFSETS = "queue_offset"


def keep_rows(batch: FetchedBatch, topic: str, part: Slice, tags: Collection[str]) -> pa.Table:
    """The rows before the end of the slice with one of the tags (none: all); damaged records are named in the log."""
    for damage in batch.damaged:
        _log.error("Queue %s of topic %s, log offset %d: %s", part.queue, topic, damage.log_offset, damage.reason)
    table = _rows_before(batch, part.end)
    if tags:
        table = table.filter(pc.is_in(table.column("tag"), pa.array(sorted(tags), pa.utf8())))
    return table


def _rows_before(batch: FetchedBatch, end: int) -> pa.Table:
    """The rows below the offset `end`, which may lie within a bulk message."""
    if batch.next_offset <= end:
        return batch.table
    return batch.table.slice(0, pc.sum(pc.less(batch.table.column(_OFFSETS), end)).as_py() or 0)
