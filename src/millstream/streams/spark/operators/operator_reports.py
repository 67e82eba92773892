"""What operators leave for the driver beside their rows: late rows, event time, what waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from millstream.streams.operators.operator import START_OF_TIME_US, Row
from millstream.streams.operators.state import OpenEnds
from millstream.streams.plan.nodes import scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Field, Schema
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.operators.arrow_rows import batch_of
from millstream.streams.spark.operators.wiring import Wiring
from millstream.streams.state.spool import Spool

__all__ = [
    "EventTimes",
    "LateRows",
    "LateShape",
    "OperatorEnds",
    "QueueTimes",
    "ends_by_operator",
    "event_times_of",
    "late_shapes",
    "late_spool",
    "open_ends_spool",
    "times_spool",
]


@dataclass(frozen=True, slots=True)
class LateShape:
    """One input of an operator. Columns that the operator computes for itself have the text of the expression."""

    schema: Schema
    tables: tuple[Table, ...]

    def batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Late rows of that input in columns."""
        arrow = arrow_schema(spark_schema(self.schema))
        return pa.RecordBatch.from_arrays(batch_of(rows, list(arrow)), schema=arrow)


def late_shapes(wiring: Wiring) -> tuple[LateShape, ...]:
    """The shape of each input."""
    shapes = []
    for wire in wiring.inputs:
        tables = {scan.table.name: scan.table for scan in scans_of(wire.node)}
        fields = tuple(Field(str(column), column.type) for column in wire.columns)
        shapes.append(LateShape(Schema(fields), tuple(tables.values())))
    return tuple(shapes)


_DECIMAL: Final = 1
_TUPLE: Final = 2
"""Codes of msgpack's extensions for values of rows that msgpack does not tell from texts and lists."""


class LateRows(msgspec.Struct, frozen=True):
    """Rows of one operator that came behind the watermark, as they are in a spool; see `of` and `rows`."""

    operator: str
    """The operator's name in its job."""

    packed: list[tuple[int, list[Any]]]
    """The number of the input that each row came from, and its values."""

    @classmethod
    def of(cls, operator: str, rows: Sequence[tuple[int, Row]]) -> LateRows:
        """The rows of an operator, each with the number of its input."""
        return cls(operator, [(number, [_pack(value) for value in row]) for number, row in rows])

    def rows(self) -> list[tuple[int, Row]]:
        """The rows as the operator had them, each with the number of its input."""
        return [(number, tuple(map(_unpack, values))) for number, values in self.packed]


def late_spool(directory: Path) -> Spool[LateRows]:
    """The late rows; a file for each task of an operator and micro-batch."""
    return Spool(directory, ".late", LateRows)


class OperatorEnds(msgspec.Struct, frozen=True):
    """What one task of an operator has open after a micro-batch."""

    operator: str
    """The operator's name in its job."""

    ends: OpenEnds
    """What waits for the watermark."""


def open_ends_spool(directory: Path) -> Spool[OperatorEnds]:
    """What waits for the watermark; a file for each task of an operator that waits."""
    return Spool(directory, ".open", OperatorEnds)


def ends_by_operator(found: Iterable[OperatorEnds]) -> dict[str, OpenEnds]:
    """What each operator has open in all its tasks."""
    ends: dict[str, OpenEnds] = {}
    for one in found:
        ends[one.operator] = one.ends.with_more(ends.get(one.operator, OpenEnds()))
    return ends


class QueueTimes(msgspec.Struct):
    """What an operator knows of event time after a micro-batch; times are in microseconds since 1970."""

    watermark_us: int
    """The operator's watermark; START_OF_TIME_US before the first event time."""

    queues: dict[int, dict[str, int]] = {}
    """The newest event time less the watermark's delay, by the number of a source and by queue."""

    untimed: dict[int, int] = {}
    """Rows of the micro-batch whose event time is NULL, by the number of their source."""


class EventTimes(NamedTuple):
    """What all operators of a query know of event time after a micro-batch; times are in microseconds since 1970."""

    watermark_us: int | None = None
    """The least watermark; None before the first event time."""

    queues: Mapping[tuple[str, str], int] = {}
    """The newest event time less the watermark's delay, by table and queue."""

    untimed: Mapping[str, int] = {}
    """Rows of the micro-batch whose event time is NULL, by table: as many as one operator got at most."""


def times_spool(directory: Path) -> Spool[QueueTimes]:
    """What operators know of event time; a file for each operator."""
    return Spool(directory, ".times", QueueTimes)


def event_times_of(found: Iterable[QueueTimes], tables: Mapping[int, str]) -> EventTimes:
    """What operators know together; `tables` are the names of the sources by number."""
    watermarks: list[int] = []
    queues: dict[tuple[str, str], int] = {}
    untimed: dict[str, int] = {}
    for times in found:
        watermarks.append(times.watermark_us)
        for number, of_source in times.queues.items():
            if number in tables:
                queues.update({(tables[number], queue): time_us for queue, time_us in of_source.items()})
        for number, count in times.untimed.items():
            if number in tables:
                untimed[tables[number]] = max(count, untimed.get(tables[number], 0))
    least = min(watermarks, default=START_OF_TIME_US)
    return EventTimes(least if least > START_OF_TIME_US else None, queues, untimed)


def _pack(value: Any) -> Any:
    """A value of a row as msgpack gives it back: numbers of DECIMAL and pairs of MAP keep their types."""
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, tuple):
        return msgspec.msgpack.Ext(_TUPLE, msgspec.msgpack.encode([_pack(part) for part in value]))
    if isinstance(value, list):
        return [_pack(part) for part in value]
    if isinstance(value, dict):
        return {name: _pack(part) for name, part in value.items()}
    return value


def _unpack(value: Any) -> Any:
    """The value that `_pack` was given."""
    if isinstance(value, msgspec.msgpack.Ext):
        if value.code == _DECIMAL:
            return Decimal(bytes(value.data).decode())
        return tuple(_unpack(part) for part in msgspec.msgpack.decode(value.data))
    if isinstance(value, list):
        return [_unpack(part) for part in value]
    if isinstance(value, dict):
        return {name: _unpack(part) for name, part in value.items()}
    return value
