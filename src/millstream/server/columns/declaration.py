"""The columns that a topic declares for its copy: read, checked, and compared with those that its files have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError, SqlError
from millstream.streams.plan.types import DataType, TypeKind
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.source.formats.body_format import BodyColumn, BodyFormat, checked_format
from millstream.streams.spark.source.formats.keyed_rows import BodyDecoder, body_decoder
from millstream.streams.sql.parser.grammar import cursor_of
from millstream.streams.sql.parser.type_parser import parse_type
from millstream.streams.sql.syntax.script import Script

__all__ = ["MESSAGE_COLUMNS", "CopyColumns", "check_change", "columns_refused", "parse_columns"]

MAX_COLUMNS: Final = 1000
"""Columns that a topic declares at most."""

_INSTANT: Final = pa.timestamp("us", "UTC")

MESSAGE_COLUMNS: Final = pa.schema(
    [
        ("_broker", pa.string()),
        ("_queue_id", pa.int32()),
        ("_queue_offset", pa.int64()),
        ("_stored_at", _INSTANT),
        ("_born_at", _INSTANT),
        ("_message_id", pa.string()),
        ("_keys", pa.list_(pa.field("element", pa.string()))),
        ("_tag", pa.string()),
        ("_properties", pa.map_(pa.string(), pa.string())),
        ("_problem", pa.string()),
        ("_body", pa.binary()),
    ]
)
"""The columns of every copy, before the declared ones. `_problem` says why a body does not fit, which `_body` has."""

_UNKNOWN_TO_TABLES: Final = (TypeKind.NULL, TypeKind.INTERVAL_DAY, TypeKind.INTERVAL_YEAR)


@dataclass(frozen=True)
class CopyColumns:
    """Columns by name and type, and the format of the bodies that have them."""

    fields: tuple[tuple[str, DataType], ...]
    body_format: str

    @property
    def schema(self) -> pa.Schema:
        """Of a file: the columns of messages, then the declared ones, all of which may be NULL."""
        declared = [pa.field(name, arrow_type(data_type)) for name, data_type in self.fields]
        return pa.schema([*MESSAGE_COLUMNS, *declared])

    def decoder(self) -> BodyDecoder:
        """Reads bodies as a SQL job does. Raises COLUMNS_REFUSED where such columns cannot be in such a body."""
        try:
            columns = tuple(BodyColumn(name, data_type) for name, data_type in self.fields)
            if self.body_format == "raw" and len(columns) != 1:
                raise columns_refused(f"a raw body is one column, not {len(columns)}")
            text = checked_format(BodyFormat(self.body_format, columns), "the copy")
            return body_decoder(text, self.fields)
        except JobError as error:
            raise columns_refused(error.message) from None


def parse_columns(text: str, body_format: str) -> CopyColumns:
    """The declaration of columns as between the brackets of CREATE TABLE: `id BIGINT, name STRING`.

    NOT NULL has no effect. Raises COLUMNS_REFUSED.
    """
    try:
        fields = _read_fields(text)
    except SqlError as error:
        raise columns_refused(f"{text[:200]!r}: {error.message}") from None
    names = [name.lower() for name, _ in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise columns_refused(f"two columns are called {twice!r}, and readers of tables take case for nothing")
    reserved_names = {name.lower() for name in MESSAGE_COLUMNS.names}
    own = next((name for name in names if name in reserved_names), None)
    if own is not None:
        raise columns_refused(f"{own!r} is a column of every copy")
    if len(fields) > MAX_COLUMNS:
        raise columns_refused(f"{len(fields)} columns are more than {MAX_COLUMNS}")
    for name, data_type in fields:
        if data_type.holds(*_UNKNOWN_TO_TABLES):
            raise columns_refused(f"{name} is {data_type}, which tables do not have")
    return CopyColumns(tuple(fields), body_format)


def check_change(old: CopyColumns, new: CopyColumns) -> None:
    """Refuse columns that files with the old ones do not fit: COLUMNS_REFUSED.

    What is added fits, also within a ROW. What is left out, and a type that is another one, does not.
    """
    columns = dict(new.fields)
    for name, data_type in old.fields:
        if name not in columns:
            raise columns_refused(f"the column {name} is left out, which the files have")
        _check_type(name, data_type, columns[name])


def columns_refused(why: str) -> MillstreamError:
    """The refusal of a declaration."""
    return MillstreamError("COLUMNS_REFUSED", f"The declared columns cannot be copied: {why}.")


def _read_fields(text: str) -> list[tuple[str, DataType]]:
    cursor = cursor_of(Script(text))
    fields: list[tuple[str, DataType]] = []
    while True:
        name = cursor.name("a column's name").text
        fields.append((name, parse_type(cursor)))
        if not cursor.take_symbol(","):
            break
    if not cursor.at_end:
        raise cursor.expected_error("a comma or the end")
    return fields


def _check_type(path: str, old: DataType, new: DataType) -> None:
    same = old.kind is new.kind and len(old.elements) == len(new.elements)
    if same and old.kind is TypeKind.DECIMAL:
        same = arrow_type(old) == arrow_type(new)
    if not same:
        raise columns_refused(f"the column {path} was {old} and is {new} now")
    for before, now in zip(old.elements, new.elements, strict=True):
        _check_type(f"{path}[]", before, now)
    fields = {one.name: one.type for one in new.fields}
    for field in old.fields:
        if field.name not in fields:
            raise columns_refused(f"the field {path}.{field.name} is left out, which the files have")
        _check_type(f"{path}.{field.name}", field.type, fields[field.name])
