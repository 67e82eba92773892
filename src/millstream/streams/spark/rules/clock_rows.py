"""Rows that are no hits: they tell how far event time has come in a queue whose events no rule may have fitted."""

from __future__ import annotations

import pyarrow as pa

from millstream.streams.spark.columns.hidden import QUEUE_COLUMN, TICK_COLUMN
from millstream.streams.spark.source.ticks import WAKE_TIME_MS

__all__ = ["EVENT_TIME", "clock_row"]

EVENT_TIME = "event_time"
"""The column that such a row has."""

_US = 1000
"""Microseconds in a millisecond."""


def clock_row(schema: pa.Schema, queue: str, newest_us: int) -> pa.RecordBatch:
    """The row for the newest event time of `queue`."""
    # Each queue has a clock of its own, which a tick with that time would overrule.
    told = {EVENT_TIME: newest_us, QUEUE_COLUMN: queue, TICK_COLUMN: WAKE_TIME_MS * _US}
    values = [
        pa.array([told[field.name]], _plain(field.type)).cast(field.type)
        if field.name in told
        else pa.nulls(1, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(values, schema=schema)


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """What a value of Python is before it becomes a column's."""
    return pa.int64() if pa.types.is_timestamp(arrow_type) else arrow_type
