"""Tables as CREATE TABLE declares them: columns, watermark, key, options, and partition directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from millstream.streams.errors import JobError
from millstream.streams.plan.expressions import Expression, is_proctime
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = [
    "DEFAULT_NAME",
    "ComputedColumn",
    "MetadataColumn",
    "PhysicalColumn",
    "Table",
    "Watermark",
    "local_directory",
    "named_values",
    "partition_name",
]


def local_directory(path: str) -> Path:
    """The directory of a path or a file: URL. Raises JobError SINK_FAILED for another URL."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in path:
        raise JobError("SINK_FAILED", f"{path!r} is no local directory.", remedy="Use a path or a file: URL.")
    return Path(path)


DEFAULT_NAME: Final = "__DEFAULT_PARTITION__"
"""What stands in the place of NULL and of an empty text where `partition.default-name` says nothing."""

_ESCAPED = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}


def partition_name(column: str, value: str | None, default_name: str = DEFAULT_NAME) -> str:
    """The name of the directory of rows with that value; None is NULL."""
    return f"{column.translate(_ESCAPED)}={(value or default_name).translate(_ESCAPED)}"


def named_values(directories: Iterable[str], default_name: str = DEFAULT_NAME) -> dict[str, str | None]:
    """The values by column that directories name; other directories say nothing."""
    parts = (name.partition("=") for name in directories if "=" in name)
    texts = {unquote(column): unquote(text) for column, _, text in parts}
    return {column: None if text == default_name else text for column, text in texts.items()}


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A column that is in the data."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column that the connector fills; `key` is the connector's name of it. A `virtual` one is not written."""

    name: str
    type: DataType
    key: str
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column computed from physical and metadata columns when the table is read; never written."""

    name: str
    expression: Expression

    @property
    def type(self) -> DataType:
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event time: rows may be up to `delay_ms` older than the newest one seen in `column`.

    With an `expression` its newest value is the watermark, in the place of the column's; `delay_ms` is 0 then.
    """

    column: str
    delay_ms: int
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the catalog. `options` are the WITH options, checked by the connector's rules.

    A secret among the options may be a reference to the environment, which is looked up when a job starts.
    `partition_keys` are the columns of PARTITIONED BY, `distribution_keys` and `buckets` those of DISTRIBUTED BY.
    `is_dimension` says that PERIOD FOR SYSTEM_TIME declared it as one to look up, `upserts` that it is read as the last
    row of each primary key, which later ones replace.
    """

    name: str
    columns: tuple[PhysicalColumn | MetadataColumn | ComputedColumn, ...]
    options: dict[str, str]
    watermark: Watermark | None = None
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    distribution_keys: tuple[str, ...] = ()
    buckets: int | None = None
    is_dimension: bool = False
    unique_keys: tuple[tuple[str, ...], ...] = ()
    upserts: bool = False

    @property
    def connector(self) -> str:
        return self.options.get("connector", "")

    @property
    def schema(self) -> Schema:
        """All columns, as a query sees them. A computed PROCTIME() is a processing-time attribute."""
        rowtime = self.watermark.column if self.watermark else None
        return Schema(
            tuple(
                Field(
                    column.name,
                    column.type,
                    column.name == rowtime,
                    isinstance(column, ComputedColumn) and is_proctime(column.expression),
                )
                for column in self.columns
            )
        )

    @property
    def physical(self) -> tuple[PhysicalColumn, ...]:
        return tuple(column for column in self.columns if isinstance(column, PhysicalColumn))

    @property
    def metadata(self) -> tuple[MetadataColumn, ...]:
        return tuple(column for column in self.columns if isinstance(column, MetadataColumn))

    @property
    def writable(self) -> tuple[PhysicalColumn | MetadataColumn, ...]:
        """The columns that an INSERT fills, in order."""
        return tuple(
            column
            for column in self.columns
            if isinstance(column, PhysicalColumn) or (isinstance(column, MetadataColumn) and not column.virtual)
        )
