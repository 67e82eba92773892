"""Tables as CREATE TABLE declares them: columns, watermark, key and options, before any connector looks at them."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.expressions import Expression, is_proctime
from millstream.streams.plan.types import DataType, Field, Schema

__all__ = ["ComputedColumn", "MetadataColumn", "PhysicalColumn", "Table", "Watermark"]


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
