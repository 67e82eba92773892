"""Derived definitions: ALTER TABLE, CREATE TABLE ... LIKE and CREATE TABLE ... AS."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from millstream.streams.plan.types import Schema
from millstream.streams.sql.syntax.expressions import NameTerm
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.tables import (
    AddColumns,
    ColumnChange,
    ColumnDefinition,
    CreateTable,
    DropColumns,
    DropPart,
    LikeClause,
    OptionDefinition,
    RenameColumn,
    ResetOptions,
    SetOptions,
    TableChange,
)

__all__ = ["apply_change", "like", "of_query", "relocate"]


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


_T = TypeVar("_T")
_Strategies = dict[str, tuple[str, Span]]


def relocate(tree: _T, span: Span) -> _T:
    """The same tree with all its places at `span`: what another script said is shown where this one asks for it."""
    if isinstance(tree, Span):
        return cast("_T", span)
    if isinstance(tree, tuple):
        return cast("_T", tuple(relocate(part, span) for part in tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        changed = {part.name: relocate(getattr(tree, part.name), span) for part in fields(tree)}
        return cast("_T", type(tree)(**changed))
    return tree


def like(statement: CreateTable, source: CreateTable, script: Script) -> CreateTable:
    """The definition with what LIKE takes from `source`; Flink's default is INCLUDING ALL OVERWRITING OPTIONS."""
    clause = statement.like
    assert clause is not None
    source = relocate(source, clause.table.span)
    strategies = _strategies(clause, script)
    return replace(
        statement,
        columns=_columns(statement, source, strategies, script),
        options=_options(statement, source, strategies, script),
        watermark=_one("WATERMARKS", statement.watermark, source.watermark, strategies, script),
        primary_key=_one("CONSTRAINTS", statement.primary_key, source.primary_key, strategies, script),
        unique_keys=statement.unique_keys or (source.unique_keys if _includes("CONSTRAINTS", strategies) else ()),
        partitions=_one("PARTITIONS", statement.partitions, source.partitions, strategies, script),
        distribution=_one("DISTRIBUTION", statement.distribution, source.distribution, strategies, script),
        is_dimension=statement.is_dimension or source.is_dimension,
        like=None,
    )


def of_query(statement: CreateTable, schema: Schema, script: Script) -> CreateTable:
    """The definition of CREATE TABLE ... AS: the query's columns, then what the statement adds to them."""
    given = {definition.name for definition in statement.columns}
    for definition in statement.columns:
        if definition.expression is None and schema.find(definition.name) is None:
            message = f'The query gives no column "{definition.name}".'
            raise script.error("SQL_SYNTAX", message, definition.span, remedy="Add it to SELECT.")
    columns = [
        ColumnDefinition(field.name, statement.span, field.type) for field in schema.fields if field.name not in given
    ]
    ordered = [definition for definition in statement.columns if definition.expression is None]
    computed = [definition for definition in statement.columns if definition.expression is not None]
    return replace(statement, columns=(*ordered, *columns, *computed))


def _strategies(clause: LikeClause, script: Script) -> _Strategies:
    found: _Strategies = {}
    for feature, strategy, span in clause.strategies:
        if feature in found:
            raise script.error("SQL_SYNTAX", f"{feature} has two strategies.", span)
        found[feature] = (strategy, span)
    everything = found.pop("ALL", ("INCLUDING", clause.table.span))
    found.setdefault("OPTIONS", ("OVERWRITING", everything[1]) if everything[0] == "INCLUDING" else everything)
    for feature in ("CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "PARTITIONS", "WATERMARKS"):
        found.setdefault(feature, everything)
    return found


def _includes(feature: str, strategies: _Strategies) -> bool:
    return strategies[feature][0] != "EXCLUDING"


def _one(feature: str, own: _T, theirs: _T, strategies: _Strategies, script: Script) -> _T:
    """What a table has one of: its own or the other's; both are an error where nothing says which one counts."""
    strategy, span = strategies[feature]
    if strategy == "EXCLUDING" or not theirs:
        return own
    if own and strategy == "INCLUDING":
        message = f"Both tables have {feature}."
        raise script.error("SQL_SYNTAX", message, span, remedy=f"Say EXCLUDING {feature} in brackets behind LIKE.")
    return own or theirs


def _options(
    statement: CreateTable, source: CreateTable, strategies: _Strategies, script: Script
) -> tuple[OptionDefinition, ...]:
    strategy, _ = strategies["OPTIONS"]
    if strategy == "EXCLUDING":
        return statement.options
    own = {option.key: option for option in statement.options}
    for option in source.options:
        if option.key in own and strategy == "INCLUDING":
            message = f"Both tables have the option '{option.key}'."
            raise script.error("SQL_OPTION", message, own[option.key].span, remedy="Say OVERWRITING OPTIONS.")
    return (*(option for option in source.options if option.key not in own), *statement.options)


def _columns(
    statement: CreateTable, source: CreateTable, strategies: _Strategies, script: Script
) -> tuple[ColumnDefinition, ...]:
    own = {definition.name: definition for definition in statement.columns}
    columns: list[ColumnDefinition] = []
    for definition in source.columns:
        feature = "GENERATED" if definition.expression is not None else "METADATA" if definition.metadata_key else ""
        if feature and not _includes(feature, strategies):
            continue
        mine = own.get(definition.name)
        if mine is None:
            columns.append(definition)
        elif not feature or strategies[feature][0] != "OVERWRITING":
            message = f'Both tables have a column "{definition.name}".'
            raise script.error("SQL_SYNTAX", message, mine.span, remedy="Leave it out, or give it another name.")
    return (*columns, *statement.columns)
