"""The columns that a topic declares for its copy: read, checked, and as Arrow has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.server.columns.column_changes import ColumnFields, check_fields, columns_refused, read_fields
from millstream.streams.errors import JobError
from millstream.streams.spark.columns.arrow_types import arrow_type
from millstream.streams.spark.source.formats.body_format import BodyColumn, BodyFormat, checked_format
from millstream.streams.spark.source.formats.keyed_rows import BodyDecoder, body_decoder

__all__ = ["MESSAGE_COLUMNS", "CopyColumns", "parse_columns"]

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


@dataclass(frozen=True)
class CopyColumns:
    """Columns by name and type, and the format of the bodies that have them."""

    fields: ColumnFields
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
    fields = read_fields(text)
    check_fields(fields)
    return CopyColumns(fields, body_format)
