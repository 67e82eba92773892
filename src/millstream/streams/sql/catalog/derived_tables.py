"""Definitions made of others: CREATE TABLE ... LIKE, and CREATE TABLE ... AS."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from millstream.streams.plan.types import Schema
from millstream.streams.sql.syntax.script import Script, Span
from millstream.streams.sql.syntax.tables import ColumnDefinition, CreateTable, LikeClause, OptionDefinition

__all__ = ["like", "of_query", "relocate"]

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
    taken: list[ColumnDefinition] = []
    for definition in source.columns:
        feature = "GENERATED" if definition.expression is not None else "METADATA" if definition.metadata_key else ""
        if feature and not _includes(feature, strategies):
            continue
        mine = own.get(definition.name)
        if mine is None:
            taken.append(definition)
        elif not feature or strategies[feature][0] != "OVERWRITING":
            message = f'Both tables have a column "{definition.name}".'
            raise script.error("SQL_SYNTAX", message, mine.span, remedy="Leave it out, or give it another name.")
    return (*taken, *statement.columns)
