"""Decodes messages to rows: the body by its format, and key columns from the key.

Avro bodies that say what changed: Debezium's envelope, whose schema a registry has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.formats.avro_bodies import UNREADABLE, AvroRecords
from millstream.streams.spark.source.formats.body_format import CHANGELOG_FORMATS, DEBEZIUM_AVRO, BodyFormat, KeyFormat
from millstream.streams.spark.source.formats.changelog_bodies import ChangelogBodyDecoder
from millstream.streams.spark.source.formats.csv_bodies import CsvDecoder
from millstream.streams.spark.source.formats.decoder import DecodedRows, JsonDecoder, Malformed
from millstream.streams.spark.source.formats.raw_bodies import RawDecoder
from millstream.streams.spark.source.formats.typed_values import MAX_REASON_CHARACTERS, column_of, typed_converter
from millstream.streams.spark.source.messages import Messages

__all__ = ["AvroChangesDecoder", "BodyDecoder", "KeyedRows", "body_decoder"]

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
    kinds = _SAID.get(envelope.get("op") or "")
    if kinds is None:
        raise ValueError(f"op {envelope.get('op')!r} is none of {', '.join(_SAID)}")
    for _, name in kinds:
        if not isinstance(envelope.get(name), dict):
            raise ValueError(f"{name} is null (the database must log whole rows: REPLICA IDENTITY FULL in PostgreSQL)")
    return [(kind, envelope[name]) for kind, name in kinds]


class BodyDecoder(Protocol):
    """Makes rows of bodies of one format."""

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows, and the bodies that are none."""
        ...


def body_decoder(text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> BodyDecoder:
    """The decoder of a format for the columns of `fields`."""
    if text.name == DEBEZIUM_AVRO:
        return AvroChangesDecoder(text, fields)
    if text.name in CHANGELOG_FORMATS:
        return ChangelogBodyDecoder(text, fields)
    match text.name:
        case "csv":
            return CsvDecoder(text, fields)
        case "raw":
            return RawDecoder(text, fields)
        case "avro" | "avro-confluent":
            from millstream.streams.spark.source.formats.avro_bodies import AvroDecoder

            return AvroDecoder(text, fields)
        case "protobuf":
            from millstream.streams.spark.source.formats.protobuf_bodies import ProtobufDecoder

            return ProtobufDecoder(text, fields)
        case _:
            return JsonDecoder(fields, complete=text.is_set("fail-on-missing-field"))


class KeyedRows:
    """Rows of messages whose key is part of the row; `fields` are the wanted columns of body and key.

    With `upserts` each row is an update of its key, and a message without a body (or with `null`) deletes it.
    """

    def __init__(
        self, text: BodyFormat, key: KeyFormat, fields: Sequence[tuple[str, DataType]], *, upserts: bool
    ) -> None:
        names = dict(zip(key.names, key.text.columns, strict=True))
        self._from_key = [place for place, (name, _) in enumerate(fields) if name in names]
        self._in_body = [place for place, (name, _) in enumerate(fields) if key.in_body or name not in names]
        self._types = [kind for _, kind in fields]
        self._key = body_decoder(
            key.text, [(names[fields[place][0]].name, fields[place][1]) for place in self._from_key]
        )
        self._body = body_decoder(text, [fields[place] for place in self._in_body])
        self._reads_all_keys = not key.in_body and bool(self._from_key)
        self._upserts = upserts

    def decode(self, messages: Messages) -> DecodedRows:
        """The rows of `messages`, and those that are none."""
        bodies = messages.bodies()
        reasons: dict[int, str] = {}
        deleted = [place for place, body in enumerate(bodies) if self._upserts and body in (b"", b"null")]
        gone = set(deleted)
        present = [place for place in range(len(bodies)) if place not in gone]
        body = self._body.decode([bodies[place] for place in present])
        rows = _places(body, present, reasons)
        keyed = list(range(len(bodies))) if self._reads_all_keys else deleted
        texts = list(messages.metadata("keys")) if keyed else []
        key = self._key.decode([" ".join(texts[place] or ()).encode() for place in keyed])
        key_rows = _places(key, keyed, reasons)
        columns: dict[int, pa.Array] = {}
        kept = [place for place in range(len(bodies)) if place not in reasons]
        for column, array in zip(self._in_body, body.columns, strict=True):
            columns[column] = array.take(pa.array([rows.get(place) for place in kept], pa.int32()))
        for column, array in zip(self._from_key, key.columns, strict=True):
            of_key = array.take(pa.array([key_rows.get(place) for place in kept], pa.int32()))
            columns[column] = _either(columns.get(column), of_key, [place in gone for place in kept])
        kinds = [RowKind.DELETE.value if place in gone else RowKind.UPDATE_AFTER.value for place in kept]
        return DecodedRows(
            tuple(columns[place] for place in range(len(self._types))),
            tuple(Malformed(place, reasons[place]) for place in sorted(reasons)),
            pa.array(kept, pa.int32()),
            pa.array(kinds, pa.int8()) if self._upserts else None,
        )


def _places(decoded: DecodedRows, places: Sequence[int], reasons: dict[int, str]) -> dict[int, int]:
    """Which row of `decoded` each message is; the reasons of those that are none are added."""
    for refused in decoded.malformed:
        reasons.setdefault(places[refused.position], refused.reason)
    kept = range(len(places)) if decoded.kept is None else decoded.kept.to_pylist()
    return {places[position]: row for row, position in enumerate(kept)}


def _either(of_body: pa.Array | None, of_key: pa.Array, by_key: Sequence[bool]) -> pa.Array:
    """The key's values where `by_key`, or where the body has no such column."""
    if of_body is None:
        return of_key
    values = [
        key if taken else own for taken, key, own in zip(by_key, of_key.to_pylist(), of_body.to_pylist(), strict=True)
    ]
    return pa.array(values, of_body.type)
