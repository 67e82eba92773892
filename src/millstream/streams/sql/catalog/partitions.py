"""SHOW PARTITIONS: the partitions of a table that its directory holds now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millstream.streams.plan.local_paths import local_directory
from millstream.streams.plan.partition_names import DEFAULT_NAME, named_values
from millstream.streams.plan.tables import Table
from millstream.streams.sql.syntax.expressions import LiteralTerm
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.statements import PartitionValue
from millstream.streams.sql.syntax.suggestions import did_you_mean

__all__ = ["partition_rows"]


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
