"""ALTER TABLE: the definition that a change makes of another one."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.suggestions import did_you_mean
from millstream.streams.sql.syntax.tables import (
    AddColumns,
    ColumnChange,
    ColumnDefinition,
    CreateTable,
    DropColumns,
    DropPart,
    RenameColumn,
    ResetOptions,
    SetOptions,
    TableChange,
)

__all__ = ["apply_change"]


def apply_change(definition: CreateTable, change: TableChange, script: Script, span: Span) -> CreateTable:
    """The definition after the change; a new name is not part of it. Raises SqlError."""
    match change:
        case SetOptions(options=options):
            given = {option.key for option in options}
            kept = tuple(option for option in definition.options if option.key not in given)
            return replace(definition, options=(*kept, *options))
        case ResetOptions(keys=keys):
            return _reset(definition, keys, script, change.span)
        case RenameColumn(old=old, new=new):
            return _rename_column(definition, old, new, script)
        case AddColumns():
            return _add_columns(definition, change, script)
        case DropColumns(names=names):
            for name in names:
                definition = _without(definition, name, script)
            return definition
        case DropPart(part=part):
            return _without_part(definition, part, script, change.span)
        case _:
            return definition


def _reset(definition: CreateTable, keys: tuple[str, ...], script: Script, span: Span) -> CreateTable:
    known = [option.key for option in definition.options]
    for key in keys:
        if key not in known:
            message = f"The table has no option '{key}'."
            raise script.error(
                "SQL_OPTION", message, span, remedy=did_you_mean(key, known) or f"It has {', '.join(known)}."
            )
    return replace(definition, options=tuple(option for option in definition.options if option.key not in keys))


def _place_of(definition: CreateTable, name: NameTerm, script: Script) -> int:
    names = [column.name for column in definition.columns]
    if name.parts[0] not in names:
        message = f'The table has no column "{name.parts[0]}".'
        raise script.error("SQL_UNKNOWN_COLUMN", message, name.span, remedy=did_you_mean(name.parts[0], names) or None)
    return names.index(name.parts[0])


def _uses(definition: CreateTable, name: NameTerm) -> str:
    """What else of the table names a column; blank if nothing does."""
    column = name.parts[0]
    for other in definition.columns:
        if other.name != column and other.expression is not None and _names(other.expression, column):
            return f'The computed column "{other.name}" uses it.'
    if definition.watermark is not None and (
        definition.watermark.column.parts[0] == column or _names(definition.watermark.expression, column)
    ):
        return "The watermark uses it."
    keys = (*definition.primary_key, *definition.partitions, *(key for keys in definition.unique_keys for key in keys))
    distribution = () if definition.distribution is None else definition.distribution.columns
    return "A key uses it." if any(key.parts[0] == column for key in (*keys, *distribution)) else ""


def _names(tree: object, column: str) -> bool:
    if isinstance(tree, NameTerm):
        return tree.parts[0] == column
    if isinstance(tree, tuple):
        return any(_names(part, column) for part in tree)
    parts = getattr(tree, "__dataclass_fields__", {})
    return any(_names(getattr(tree, name), column) for name in parts)


def _rename_column(definition: CreateTable, old: NameTerm, new: NameTerm, script: Script) -> CreateTable:
    place = _place_of(definition, old, script)
    use = _uses(definition, old)
    if use:
        message = f'"{old.parts[0]}" cannot get another name. {use}'
        raise script.error("SQL_UNSUPPORTED", message, old.span, remedy="Drop and create the table.")
    columns = list(definition.columns)
    columns[place] = replace(columns[place], name=new.parts[0], span=new.span)
    return replace(definition, columns=tuple(columns))


def _without(definition: CreateTable, name: NameTerm, script: Script) -> CreateTable:
    place = _place_of(definition, name, script)
    use = _uses(definition, name)
    if use:
        message = f'"{name.parts[0]}" cannot be dropped. {use}'
        raise script.error("SQL_UNSUPPORTED", message, name.span, remedy="Drop that first.")
    return replace(definition, columns=(*definition.columns[:place], *definition.columns[place + 1 :]))


def _without_part(definition: CreateTable, part: str, script: Script, span: Span) -> CreateTable:
    there = definition.watermark is not None if part == "WATERMARK" else bool(definition.primary_key)
    if not there:
        raise script.error("SQL_SYNTAX", f"The table has no {part}.", span)
    return replace(definition, watermark=None) if part == "WATERMARK" else replace(definition, primary_key=())


def _add_columns(definition: CreateTable, change: AddColumns, script: Script) -> CreateTable:
    for part, given, there in (
        ("WATERMARK", change.watermark is not None, definition.watermark is not None),
        ("PRIMARY KEY", bool(change.primary_key), bool(definition.primary_key)),
    ):
        if given and there != change.modifies:
            message = f"The table has {'no' if change.modifies else 'a'} {part}{'' if change.modifies else ' already'}."
            remedy = f"Use {'ADD' if change.modifies else 'MODIFY'}."
            raise script.error("SQL_SYNTAX", message, change.span, remedy=remedy)
    columns = list(definition.columns)
    for column in change.columns:
        columns = _place_column(columns, column, definition, change.modifies, script)
    return replace(
        definition,
        columns=tuple(columns),
        watermark=change.watermark or definition.watermark,
        primary_key=change.primary_key or definition.primary_key,
    )


def _place_column(
    columns: list[ColumnDefinition], change: ColumnChange, definition: CreateTable, modifies: bool, script: Script
) -> list[ColumnDefinition]:
    column = change.column
    names = [known.name for known in columns]
    if (column.name in names) != modifies:
        message = f'The table has {"no" if modifies else "a"} column "{column.name}"{"" if modifies else " already"}.'
        remedy = f"Use {'ADD' if modifies else 'MODIFY'}."
        raise script.error("SQL_UNKNOWN_COLUMN" if modifies else "SQL_SYNTAX", message, column.span, remedy=remedy)
    place = len(columns)
    if modifies:
        place = names.index(column.name)
        columns = columns[:place] + columns[place + 1 :]
    if change.place == "FIRST":
        place = 0
    elif change.after is not None:
        place = _place_of(replace(definition, columns=tuple(columns)), change.after, script) + 1
    return [*columns[:place], column, *columns[place:]]
