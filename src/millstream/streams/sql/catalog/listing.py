"""The results of SHOW and DESCRIBE, and CREATE statements from a catalog."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.functions.registry import AGGREGATES, FUNCTIONS, WINDOW_FUNCTIONS
from millstream.streams.functions.spec import FunctionSpec
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.plan.tables import (
    DEFAULT_NAME,
    ComputedColumn,
    MetadataColumn,
    Table,
    local_directory,
    named_values,
)
from millstream.streams.plan.types import DataType, Schema, TypeKind
from millstream.streams.secrets import shown_url
from millstream.streams.sql.catalog.catalog import Catalog, CatalogDefinition, CatalogTable, CatalogView, FullName
from millstream.streams.sql.syntax.expressions import LiteralTerm
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.statements import CreateFunction, PartitionValue, Show
from millstream.streams.sql.syntax.tables import ColumnDefinition, CreateTable

__all__ = [
    "COLUMN_HEADS",
    "INFO_HEADS",
    "TextResult",
    "built_in_rows",
    "columns_of_table",
    "create_catalog_text",
    "create_table_text",
    "create_view_text",
    "function_rows",
    "lists",
    "matches",
    "partition_rows",
]


INFO_HEADS = ("info name", "info value")
"""The columns of what is not a list: each row has a name and a value."""

_Rows = tuple[tuple[str, str], ...]


def function_rows(function: UserFunction, definition: CreateFunction, *, extended: bool) -> _Rows:
    """How a user's function was made; with `extended` also what it takes and gives."""
    rows = (
        ("system function", _word(definition.system)),
        ("temporary", _word(definition.temporary)),
        ("class name", function.path),
        ("function language", definition.language or "PYTHON"),
        ("resource uris", ", ".join(definition.jars)),
    )
    if not extended:
        return rows
    kind = "AGGREGATE" if function.is_aggregate else "SCALAR"
    more = _more(kind, function.deterministic, function.example, str(function.result), function.description)
    return (*rows, *more)


def built_in_rows(spec: FunctionSpec, kind: str, *, extended: bool) -> _Rows:
    """The same of a function that is built in."""
    rows = (("system function", "true"), ("temporary", "false"))
    if not extended:
        return rows
    return (*rows, *_more(kind, spec.deterministic, spec.example, spec.result_shown, spec.description))


def _more(kind: str, deterministic: bool, example: str, result: str, description: str) -> _Rows:
    return (
        ("kind", kind),
        ("requirements", "[]"),
        ("deterministic", _word(deterministic)),
        ("signature", example),
        ("result", result),
        ("description", description),
    )


def _word(value: bool) -> str:
    return str(value).lower()


def partition_rows(
    table: Table, wanted: tuple[PartitionValue, ...], span: Span, script: Script
) -> tuple[tuple[str, ...], ...]:
    """The values of each partition that has files, in the order of PARTITIONED BY; those with the `wanted` values.

    Raises SqlError for a table without partitions, and where its directory cannot be read.
    """
    if not table.partition_keys:
        message = f'The table "{table.name}" is not partitioned.'
        raise script.error("SQL_UNSUPPORTED", message, span, remedy="Tables of files have PARTITIONED BY (...).")
    values = dict(_value(part, table, script) for part in wanted)
    root = local_directory(table.options["path"])
    try:
        directories = [one for one in _directories(root, len(table.partition_keys)) if _has_files(one)]
    except OSError as error:
        message = f'The partitions of "{table.name}" cannot be read: {error.strerror}: {error.filename}.'
        raise script.error("JOB_FAILED", message, span, remedy="Correct 'path', or who may read it.") from None
    default = table.options.get("partition.default-name", DEFAULT_NAME)
    found = []
    for directory in directories:
        named = named_values(directory.relative_to(root).parts, default)
        row = tuple(named.get(key) for key in table.partition_keys)
        if all(named.get(key) == value for key, value in values.items()):
            found.append(tuple("NULL" if value is None else value for value in row))
    return tuple(sorted(found))


def _value(part: PartitionValue, table: Table, script: Script) -> tuple[str, str | None]:
    name = part.column.parts[0]
    if name not in table.partition_keys:
        message = f'"{name}" is none of the columns by which "{table.name}" is partitioned.'
        remedy = did_you_mean(name, table.partition_keys) or f"They are {', '.join(table.partition_keys)}."
        raise script.error("SQL_UNKNOWN_COLUMN", message, part.column.span, remedy=remedy)
    if not isinstance(part.value, LiteralTerm):
        message = "PARTITION of SHOW takes a value for each column that it names."
        raise script.error("SQL_SYNTAX", message, part.column.span, remedy=f"Write PARTITION ({name} = '...').")
    return name, None if part.value.value in (None, "") else str(part.value.value)


def _directories(root: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield root
        return
    for path in root.iterdir() if root.is_dir() else ():
        if path.is_dir() and "=" in path.name:
            yield from _directories(path, depth - 1)


def _has_files(directory: Path) -> bool:
    return any(not path.name.startswith((".", "_")) for path in directory.iterdir())


_SECRET = "******"

COLUMN_HEADS = ("name", "type", "null", "key", "extras", "watermark", "comment")
"""What DESCRIBE and SHOW COLUMNS say of a column."""


@dataclass(frozen=True, slots=True)
class TextResult:
    """What a statement says: a title, and rows under columns where it lists something."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def lists(show: Show, catalog: Catalog) -> TextResult:
    """The names that SHOW lists, filtered."""
    parts = catalog.current if show.path is None else (*catalog.current[:1], *show.path.parts)
    place = (parts[-2], parts[-1])
    names: Iterable[str]
    match show.what:
        case "CATALOGS":
            names = catalog.databases
        case "DATABASES":
            names = catalog.databases[catalog.current[0] if show.path is None else show.path.parts[0]]
        case "FUNCTIONS":
            names = (*FUNCTIONS, *AGGREGATES, *WINDOW_FUNCTIONS, *catalog.names_in(*place, "FUNCTIONS"))
        case "USER FUNCTIONS":
            of_place = catalog.names_in(*place, "FUNCTIONS")
            names = (name[2] for name in catalog.functions) if show.path is None else of_place
        case "MODULES" | "FULL MODULES":
            names = ("core",)
        case "JARS" | "PROCEDURES" | "MATERIALIZED TABLES":
            names = ()
        case what:
            names = catalog.names_in(place[0], place[1], what)
    kept = sorted(name for name in set(names) if matches(show, name))
    title = f"There are no {show.what.lower()}."
    if show.what == "FULL MODULES":
        return TextResult(title, ("module name", "used"), tuple((name, "TRUE") for name in kept))
    head = "jars" if show.what == "JARS" else f"{show.what.split()[-1].lower().removesuffix('s')} name"
    return TextResult(title, (head,), tuple((name,) for name in kept))


def matches(show: Show, name: str) -> bool:
    """Whether the name fits LIKE or ILIKE of SHOW; every name fits where there is none."""
    if show.pattern is None:
        return True
    signs = re.findall(r"\\[%_]|.", show.pattern, re.DOTALL)
    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign[-1]) for sign in signs)
    found = re.fullmatch("".join(parts), name, re.DOTALL | (re.IGNORECASE if show.any_case else 0)) is not None
    return found != show.negated


def columns_of_table(schema: Schema, found: CatalogTable | CatalogView) -> tuple[tuple[str, ...], ...]:
    """A row of `COLUMN_HEADS` for each column."""
    rows = []
    for field in schema.fields:
        shown = str(field.type.as_nullable())
        time = " *ROWTIME*" if field.rowtime else " *PROCTIME*" if field.proctime else ""
        notes = _column_notes(field.name, found) if isinstance(found, CatalogTable) else ("", "", "", "")
        may_be_null = field.type.nullable and not field.proctime
        rows.append((field.name, shown + time, str(may_be_null).upper(), *notes))
    return tuple(rows)


def _column_notes(name: str, found: CatalogTable) -> tuple[str, str, str, str]:
    """Its key, what else it is, the watermark over it, and its comment."""
    table = found.table
    column = next(column for column in table.columns if column.name == name)
    definition = next((of for of in found.definition.columns if of.name == name), None)
    key = f"PRI({', '.join(table.primary_key)})" if name in table.primary_key else ""
    extras = ["PARTITION KEY"] if name in table.partition_keys else []
    if isinstance(column, MetadataColumn):
        extras.append(f"METADATA FROM {_text(column.key)}{' VIRTUAL' if column.virtual else ''}")
    if isinstance(column, ComputedColumn) and definition is not None:
        extras.append(f"AS {definition.text}")
    watermark = found.definition.watermark
    late = watermark.text if watermark is not None and watermark.column.parts[0] == name else ""
    return key, ", ".join(extras), late, "" if definition is None else definition.comment


def create_catalog_text(name: str, definition: CatalogDefinition) -> str:
    """A statement that makes the catalog again."""
    options = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in sorted(definition.options.items()))
    comment = f"COMMENT {_text(definition.comment)}\n" if definition.comment else ""
    return f"CREATE CATALOG {_quote(name)}\n{comment}WITH (\n{options}\n)"


def create_table_text(name: FullName, found: CatalogTable) -> str:
    """A statement that makes the table again; secrets are not shown."""
    definition, table = found.definition, found.table
    parts = [f"  {_column_text(column)}" for column in definition.columns]
    if definition.watermark is not None:
        watermark = definition.watermark
        parts.append(f"  WATERMARK FOR {_quote(watermark.column.parts[0])} AS {watermark.text}")
    if table.primary_key:
        parts.append(f"  PRIMARY KEY ({_list_names(table.primary_key)}) NOT ENFORCED")
    parts += [f"  UNIQUE ({_list_names(key)}) NOT ENFORCED" for key in table.unique_keys]
    if table.is_dimension:
        parts.append("  PERIOD FOR SYSTEM_TIME")
    temporary = "TEMPORARY " if definition.temporary else ""
    lines = [f"CREATE {temporary}TABLE {'.'.join(map(_quote, name))} (", ",\n".join(parts), ")"]
    if definition.comment:
        lines.append(f"COMMENT {_text(definition.comment)}")
    lines += _distribution_text(definition, table)
    if table.partition_keys:
        lines.append(f"PARTITIONED BY ({_list_names(table.partition_keys)})")
    connector = CONNECTORS[table.connector]
    options = []
    for key, value in table.options.items():
        option = connector.find(key)
        hidden = option is not None and option.secret and not value.startswith("${env:")
        options.append(f"  {_text(key)} = {_text(_SECRET if hidden else shown_url(value))}")
    return "\n".join([*lines, "WITH (", ",\n".join(options), ")"])


def create_view_text(name: FullName, view: CatalogView) -> str:
    """The statement that made the view."""
    temporary = "TEMPORARY " if view.temporary else ""
    return (
        f"CREATE {temporary}VIEW {'.'.join(map(_quote, name))} ({_list_names(view.node.schema.names)}) AS\n{view.text}"
    )


def _distribution_text(definition: CreateTable, table: Table) -> list[str]:
    if definition.distribution is None:
        return []
    kind = f"{definition.distribution.kind} " if definition.distribution.kind else ""
    by = f" BY {kind}({_list_names(table.distribution_keys)})" if table.distribution_keys else ""
    buckets = f" INTO {table.buckets} BUCKETS" if table.buckets is not None else ""
    return [f"DISTRIBUTED{by}{buckets}"]


def _column_text(column: ColumnDefinition) -> str:
    comment = f" COMMENT {_text(column.comment)}" if column.comment else ""
    if column.type is None:
        return f"{_quote(column.name)} AS {column.text}{comment}"
    metadata = ""
    if column.metadata_key is not None:
        metadata = f" METADATA FROM {_text(column.metadata_key)}{' VIRTUAL' if column.virtual else ''}"
    return f"{_quote(column.name)} {_type_text(column.type)}{metadata}{comment}"


def _type_text(data_type: DataType) -> str:
    """The type with the names of its fields in back-ticks."""
    inside = ""
    match data_type.kind:
        case TypeKind.ROW:
            inside = ", ".join(f"{_quote(field.name)} {_type_text(field.type)}" for field in data_type.fields)
        case TypeKind.ARRAY | TypeKind.MAP:
            inside = ", ".join(map(_type_text, data_type.elements))
        case _:
            return str(data_type)
    return f"{data_type.kind.value}<{inside}>{'' if data_type.nullable else ' NOT NULL'}"


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(map(_quote, names))


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _text(value: str) -> str:
    return f"'{value.replace(chr(39), chr(39) * 2)}'"
