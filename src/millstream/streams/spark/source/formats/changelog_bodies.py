"""Decodes change data capture bodies to rows with change kinds.

Layouts: Debezium's JSON envelope, Canal's and Maxwell's messages as Flink's formats of those names read them (an
update's row before is the new row with the old values of what changed), and `{"op": "+I", "data": {...}}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.formats.decoder import DecodedRows, JsonDecoder, Malformed

__all__ = ["ChangelogBodyDecoder"]

_INSERT, _BEFORE, _AFTER, _DELETE = (kind.value for kind in RowKind)
_KINDS = {kind.short: kind.value for kind in RowKind}

_Row = dict[str, msgspec.Raw]
_Change = tuple[int, bytes | memoryview]
_MAX_REASON_CHARACTERS = 200
_TOMBSTONES = (b"", b"null")


class _Envelope(msgspec.Struct):
    """Debezium's."""

    op: str
    before: msgspec.Raw = msgspec.Raw(b"null")
    after: msgspec.Raw = msgspec.Raw(b"null")


class _WithSchema(msgspec.Struct):
    payload: _Envelope


class _Capture(msgspec.Struct):
    """Canal's and Maxwell's, whose `data` is a list in the one and a row in the other."""

    type: str
    data: list[_Row] | _Row | None = None
    old: list[_Row | None] | _Row | None = None
    database: str = ""
    table: str = ""
    isDdl: bool = False  # noqa: N815 - Canal's name


class _Said(msgspec.Struct):
    op: str
    data: msgspec.Raw


class ChangelogBodyDecoder:
    """Decodes bodies of one of the formats to the columns of `fields`. A change is read whole or not at all."""

    def __init__(self, text: BodyFormat, fields: Sequence[tuple[str, DataType]]) -> None:
        self._rows = JsonDecoder(fields)
        self._changes = _READERS[text.name](text)

    def decode(self, bodies: Sequence[bytes | memoryview]) -> DecodedRows:
        """The rows in the order of the bodies; what deletes a key in a compacted topic says nothing here."""
        reasons: dict[int, str] = {}
        places: list[int] = []
        kinds: list[int] = []
        texts: list[bytes | memoryview] = []
        for place, body in enumerate(bodies):
            if body in _TOMBSTONES:
                continue
            try:
                changes = self._changes(body)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                reasons[place] = str(error)[:_MAX_REASON_CHARACTERS]
                continue
            for kind, text in changes:
                places.append(place)
                kinds.append(kind)
                texts.append(text)
        decoded = self._rows.decode(texts)
        for refused in decoded.malformed:
            reasons.setdefault(places[refused.position], refused.reason)
        malformed = tuple(Malformed(place, reasons[place]) for place in sorted(reasons))
        columns = decoded.columns
        if decoded.kept is not None:
            found = decoded.kept.to_pylist()
            whole = [number for number, position in enumerate(found) if places[position] not in reasons]
            columns = tuple(column.take(pa.array(whole, pa.int32())) for column in columns)
            places, kinds = [places[found[number]] for number in whole], [kinds[found[number]] for number in whole]
        return DecodedRows(columns, malformed, pa.array(places, pa.int32()), pa.array(kinds, pa.int8()))


def _debezium(text: BodyFormat) -> Callable[[Any], list[_Change]]:
    plain = msgspec.json.Decoder(_Envelope)
    wrapped = msgspec.json.Decoder(_WithSchema)
    with_schema = text.is_set("schema-include")

    def read(body: bytes | memoryview) -> list[_Change]:
        envelope = wrapped.decode(body).payload if with_schema else plain.decode(body)
        before, after = bytes(envelope.before), bytes(envelope.after)
        match envelope.op:
            case "c" | "r":
                return [(_INSERT, _present(after, "after"))]
            case "u":
                return [(_BEFORE, _present(before, "before")), (_AFTER, _present(after, "after"))]
            case "d":
                return [(_DELETE, _present(before, "before"))]
        raise ValueError(f"op {envelope.op!r} is none of c, r, u, d")

    return read


def _present(row: bytes, name: str) -> bytes:
    if row == b"null":
        raise ValueError(f"{name} is null (the database must log whole rows: REPLICA IDENTITY FULL in PostgreSQL)")
    return row


def _capture(text: BodyFormat) -> Callable[[Any], list[_Change]]:
    decoder = msgspec.json.Decoder(_Capture)
    database, table = (text.option(f"{name}.include") for name in ("database", "table"))

    def read(body: bytes | memoryview) -> list[_Change]:
        capture = decoder.decode(body)
        if database and not re.fullmatch(database, capture.database):
            return []
        if table and not re.fullmatch(table, capture.table):
            return []
        if capture.isDdl or capture.type.upper() == "CREATE":
            return []
        rows = capture.data if isinstance(capture.data, list) else [capture.data or {}]
        match capture.type.upper():
            case "INSERT":
                return [(_INSERT, _ENCODER.encode(row)) for row in rows]
            case "DELETE":
                return [(_DELETE, _ENCODER.encode(row)) for row in rows]
            case "UPDATE":
                olds = capture.old if isinstance(capture.old, list) else [capture.old]
                return [
                    change
                    for row, old in zip(rows, olds, strict=True)
                    for change in (
                        (_BEFORE, _ENCODER.encode({**row, **(old or {})})),
                        (_AFTER, _ENCODER.encode(row)),
                    )
                ]
        raise ValueError(f"type {capture.type!r} is none of INSERT, UPDATE, DELETE")

    return read


def _changes_by(_text: BodyFormat) -> Callable[[Any], list[_Change]]:
    decoder = msgspec.json.Decoder(_Said)

    def read(body: bytes | memoryview) -> list[_Change]:
        change = decoder.decode(body)
        if change.op not in _KINDS:
            raise ValueError(f"op {change.op!r} is none of {', '.join(_KINDS)}")
        return [(_KINDS[change.op], bytes(change.data))]

    return read


_ENCODER = msgspec.json.Encoder()

_READERS: dict[str, Callable[[BodyFormat], Callable[[Any], list[_Change]]]] = {
    "debezium-json": _debezium,
    "canal-json": _capture,
    "maxwell-json": _capture,
    "changelog-json": _changes_by,
}
