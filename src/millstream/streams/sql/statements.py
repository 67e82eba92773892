"""The syntax tree of statements: what a script says around its queries, with its places."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.types import DataType
from millstream.streams.plan.windows import Emit
from millstream.streams.sql.query_syntax import Hint, QueryTree
from millstream.streams.sql.script import Span
from millstream.streams.sql.syntax import NameTerm, Term

__all__ = [
    "AddColumns",
    "AlterTable",
    "AlterView",
    "AnalyzeTable",
    "ColumnChange",
    "ColumnDefinition",
    "CreateCatalog",
    "CreateDatabase",
    "CreateFunction",
    "CreateModel",
    "CreateTable",
    "CreateView",
    "Describe",
    "Distribution",
    "Drop",
    "DropColumns",
    "DropPart",
    "Explain",
    "Insert",
    "LikeClause",
    "OptionDefinition",
    "PartitionValue",
    "Path",
    "PrintTopic",
    "Query",
    "RenameColumn",
    "RenameTable",
    "Reset",
    "ResetOptions",
    "SetOption",
    "SetOptions",
    "Show",
    "Statement",
    "StatementSet",
    "StopJob",
    "TableChange",
    "Use",
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
class CreateView:
    path: Path
    columns: tuple[str, ...]
    query: QueryTree
    span: Span
    text: str = ""
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


@dataclass(frozen=True, slots=True)
class AlterView:
    """RENAME TO `renamed`, or AS `query`."""

    path: Path
    renamed: Path | None
    query: QueryTree | None
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class AnalyzeTable:
    path: Path


@dataclass(frozen=True, slots=True)
class CreateCatalog:
    name: str
    options: tuple[OptionDefinition, ...]
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    path: Path
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`target` is what AS names: a Python callable, or a Java class where `language` is JAVA."""

    path: Path
    target: str
    language: str
    jars: tuple[str, ...]
    options: tuple[OptionDefinition, ...]
    span: Span
    if_not_exists: bool = False
    replaces: bool = False
    temporary: bool = False
    system: bool = False


@dataclass(frozen=True, slots=True)
class CreateModel:
    """`inputs` and `outputs` are columns with types alone."""

    path: Path
    inputs: tuple[ColumnDefinition, ...]
    outputs: tuple[ColumnDefinition, ...]
    options: tuple[OptionDefinition, ...]
    span: Span
    if_not_exists: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """One column of PARTITION (...); a `value` of None is dynamic: the query gives it."""

    column: NameTerm
    value: Term | None


@dataclass(frozen=True, slots=True)
class Insert:
    path: Path
    columns: tuple[NameTerm, ...]
    query: QueryTree
    span: Span
    overwrites: bool = False
    partition: tuple[PartitionValue, ...] = ()
    emit: Emit | None = None
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class StatementSet:
    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True)
class Query:
    select: QueryTree


@dataclass(frozen=True, slots=True)
class Explain:
    """`details` are those of ESTIMATED_COST, CHANGELOG_MODE and JSON_EXECUTION_PLAN that are asked for."""

    statement: Insert | Query | StatementSet
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetOption:
    key: str | None
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Reset:
    key: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Show:
    """`path` is what is shown or listed from; `pattern` is that of LIKE, `negated` of NOT LIKE."""

    what: str
    path: Path | None = None
    pattern: str | None = None
    negated: bool = False
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE; `kind` is TABLE (or a view), CATALOG, DATABASE or FUNCTION."""

    path: Path
    kind: str = "TABLE"


@dataclass(frozen=True, slots=True)
class Use:
    """USE CATALOG c, or USE d; `kind` is CATALOG or DATABASE."""

    kind: str
    path: Path


@dataclass(frozen=True, slots=True)
class Drop:
    """`kind` is TABLE, VIEW, FUNCTION, CATALOG or DATABASE; `cascades` drops what is in a database."""

    kind: str
    path: Path
    if_exists: bool
    span: Span
    temporary: bool = False
    cascades: bool = False


@dataclass(frozen=True, slots=True)
class StopJob:
    job: str
    span: Span


@dataclass(frozen=True, slots=True)
class PrintTopic:
    """PRINT: the messages of a topic as they come; without `limit` for ever."""

    topic: str
    span: Span
    from_beginning: bool = False
    limit: int | None = None


Statement = (
    CreateTable
    | CreateView
    | CreateCatalog
    | CreateDatabase
    | CreateFunction
    | CreateModel
    | AlterTable
    | AlterView
    | AnalyzeTable
    | Insert
    | StatementSet
    | Query
    | Explain
    | SetOption
    | Reset
    | Show
    | Describe
    | Use
    | Drop
    | StopJob
    | PrintTopic
)
