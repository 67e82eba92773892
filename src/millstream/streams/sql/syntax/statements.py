"""The syntax tree of statements, with source positions."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.streams.plan.nodes import OnConflict
from millstream.streams.plan.windows import Emit
from millstream.streams.sql.syntax.expressions import NameTerm, Term
from millstream.streams.sql.syntax.queries import Hint, QueryTree
from millstream.streams.sql.syntax.script import Span
from millstream.streams.sql.syntax.tables import AlterTable, ColumnDefinition, CreateTable, OptionDefinition, Path

__all__ = [
    "AlterSpace",
    "AlterView",
    "AnalyzeTable",
    "CreateCatalog",
    "CreateDatabase",
    "CreateFunction",
    "CreateModel",
    "CreateView",
    "Describe",
    "Drop",
    "Explain",
    "Insert",
    "PartitionValue",
    "PrintTopic",
    "Query",
    "Reset",
    "SetOption",
    "Show",
    "Statement",
    "StatementSet",
    "StopJob",
    "Use",
]


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
    comment: str
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    path: Path
    if_not_exists: bool
    span: Span


@dataclass(frozen=True, slots=True)
class AlterSpace:
    """ALTER CATALOG or DATABASE, by `kind`: options that are set or reset, or a comment; None leaves it as it is."""

    kind: str
    path: Path
    span: Span
    options: tuple[OptionDefinition, ...] = ()
    reset: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`target` is what AS names: a Python callable, or a Java class where `language` is JAVA.

    `alters` is ALTER FUNCTION, for one that is there; with `if_exists` nothing is done where it is not.
    """

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
    alters: bool = False
    if_exists: bool = False


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
    on_conflict: OnConflict | None = None


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
    """`path` is what is shown or listed from; `pattern` is that of LIKE, `negated` of NOT LIKE.

    `partition` are the values of SHOW PARTITIONS ... PARTITION (...).
    """

    what: str
    path: Path | None = None
    pattern: str | None = None
    negated: bool = False
    any_case: bool = False
    partition: tuple[PartitionValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Describe:
    """DESCRIBE; `kind` is TABLE (or a view), CATALOG, DATABASE, FUNCTION or MODEL."""

    path: Path
    kind: str = "TABLE"
    extended: bool = False


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
    | AlterSpace
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
