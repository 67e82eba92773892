"""Avro bodies that say what changed: Debezium's envelope, whose schema a registry has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.formats.avro_bodies import UNREADABLE, AvroRecords
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import DecodedRows, Malformed
from millstream.streams.spark.source.formats.typed_values import MAX_REASON_CHARACTERS, column_of, typed_converter

__all__ = ["AvroChangesDecoder"]

_SAID: dict[str, tuple[tuple[RowKind, str], ...]] = {
    "c": ((RowKind.INSERT, "after"),),
    "r": ((RowKind.INSERT, "after"),),
    "u": ((RowKind.UPDATE_BEFORE, "before"), (RowKind.UPDATE_AFTER, "after")),
    "d": ((RowKind.DELETE, "before"),),
}
"""Which rows an envelope holds, by its `op`."""


class AvroChangesDecoder:
    """Decodes bodies to the columns of `fields`. A change is read whole or not at all."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._records = AvroRecords(text)
        self._columns = [(name, kind, typed_converter(kind)) for name, kind in fields]

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows in the order of the bodies; what deletes a key in a compacted topic says nothing here."""
        reasons: dict[int, str] = {}
        changes: list[tuple[int, RowKind, dict[str, Any]]] = []
        for place, body in enumerate(bodies):
            try:
                if len(body):
                    changes += [(place, kind, row) for kind, row in _rows(self._records.read(body))]
            except UNREADABLE as error:
                reasons[place] = f"{error or type(error).__name__}"[:MAX_REASON_CHARACTERS]
        refused: dict[int, str] = {}
        columns = [
            column_of(name, kind, convert, [row.get(name) for _, _, row in changes], refused)
            for name, kind, convert in self._columns
        ]
        for number, reason in refused.items():
            reasons.setdefault(changes[number][0], reason)
        whole = [number for number, (place, _, _) in enumerate(changes) if place not in reasons]
        return DecodedRows(
            tuple(column.take(pa.array(whole, pa.int32())) for column in columns),
            tuple(Malformed(place, reasons[place]) for place in sorted(reasons)),
            pa.array([changes[number][0] for number in whole], pa.int32()),
            pa.array([changes[number][1].value for number in whole], pa.int8()),
        )


def _rows(envelope: dict[str, Any]) -> list[tuple[RowKind, dict[str, Any]]]:
    said = _SAID.get(envelope.get("op") or "")
    if said is None:
        raise ValueError(f"op {envelope.get('op')!r} is none of {', '.join(_SAID)}")
    for _, name in said:
        if not isinstance(envelope.get(name), dict):
            raise ValueError(f"{name} is null (the database must log whole rows: REPLICA IDENTITY FULL in PostgreSQL)")
    return [(kind, envelope[name]) for kind, name in said]
