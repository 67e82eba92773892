"""The syntax tree of tables: names, columns, options, creation and alteration."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.types import DataType
from millstream.streams.sql.syntax.expressions import NameTerm, Term
from millstream.streams.sql.syntax.queries import QueryTree
from millstream.streams.sql.syntax.script import Span

__all__ = [
    "AddColumns",
    "AlterTable",
    "ColumnChange",
    "ColumnDefinition",
    "CreateTable",
    "Distribution",
    "DropColumns",
    "DropPart",
    "LikeClause",
    "OptionDefinition",
    "Path",
    "RenameColumn",
    "RenameTable",
    "ResetOptions",
    "SetOptions",
    "TableChange",
    "WatermarkDefinition",
]


@dataclass(frozen=True, slots=True)
class Path:
    """A name of one to three parts: catalog, database, name."""

    parts: tuple[str, ...]
    span: Span

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class OptionDefinition:
    key: str
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """One column: `type` with or without METADATA, or a computed `expression`, whose `text` is as it was written."""

    name: str
    span: Span
    type: DataType | None = None
    expression: Term | None = None
    metadata_key: str | None = None
    virtual: bool = False
    comment: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class WatermarkDefinition:
    column: NameTerm
    expression: Term
    text: str = ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """DISTRIBUTED BY [HASH | RANGE] (columns) INTO n BUCKETS; `buckets` None leaves the number to the connector."""

    columns: tuple[NameTerm, ...]
    buckets: int | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class LikeClause:
    """LIKE t (INCLUDING ..., EXCLUDING ..., OVERWRITING ...): the strategy of each feature that is named."""

    table: Path
    strategies: tuple[tuple[str, str, Span], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`is_dimension` is PERIOD FOR SYSTEM_TIME; `query` is that of CREATE TABLE ... AS."""

    path: Path
    columns: tuple[ColumnDefinition, ...]
    options: tuple[OptionDefinition, ...]
    span: Span
    watermark: WatermarkDefinition | None = None
    primary_key: tuple[NameTerm, ...] = ()
    unique_keys: tuple[tuple[NameTerm, ...], ...] = ()
    partitions: tuple[NameTerm, ...] = ()
    distribution: Distribution | None = None
    is_dimension: bool = False
    comment: str = ""
    like: LikeClause | None = None
    query: QueryTree | None = None
    if_not_exists: bool = False
    replaces: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class SetOptions:
    options: tuple[OptionDefinition, ...]


@dataclass(frozen=True, slots=True)
class ResetOptions:
    keys: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class RenameTable:
    path: Path


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old: NameTerm
    new: NameTerm


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that comes or changes; `place` is "" (the end, or where it was), "FIRST", or AFTER with a column."""

    column: ColumnDefinition
    place: str = ""
    after: NameTerm | None = None


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ADD, or MODIFY where `modifies`: columns, a watermark, a primary key."""

    columns: tuple[ColumnChange, ...]
    watermark: WatermarkDefinition | None
    primary_key: tuple[NameTerm, ...]
    modifies: bool
    span: Span


@dataclass(frozen=True, slots=True)
class DropColumns:
    names: tuple[NameTerm, ...]


@dataclass(frozen=True, slots=True)
class DropPart:
    """DROP WATERMARK or DROP PRIMARY KEY."""

    part: str
    span: Span


TableChange = SetOptions | ResetOptions | RenameTable | RenameColumn | AddColumns | DropColumns | DropPart


@dataclass(frozen=True, slots=True)
class AlterTable:
    path: Path
    change: TableChange
    if_exists: bool
    span: Span
