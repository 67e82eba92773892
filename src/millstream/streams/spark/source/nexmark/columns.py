"""The wanted columns of nexmark's events, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.streams.spark.source.made_rows import Arrays
from millstream.streams.spark.source.nexmark.events import EventMaker
from millstream.streams.spark.source.nexmark.spec import NexmarkSpec

__all__ = ["events_maker"]


def events_maker(spec: NexmarkSpec, schema: pa.Schema) -> Arrays:
    """Makes the columns of `spec` with the types of `schema`."""
    maker = EventMaker(spec.settings, spec.base_time_ms)
    wanted = {column.name: tuple(part.name for part in column.type.fields) for column in spec.columns}

    def make(start: int, end: int) -> Sequence[pa.Array]:
        made = maker.columns(start, end, wanted)
        return [values.cast(schema.field(number).type) for number, values in enumerate(made.values())]

    return make
