"""TO_CHANGELOG and FROM_CHANGELOG bound: the column of codes, and which kind of change each of them is."""

from __future__ import annotations

from millstream.streams.plan.changelog import Changelog, RowKind, changelog_of
from millstream.streams.plan.conversions import FromChangelog, ToChangelog
from millstream.streams.plan.nodes import Node, Normalize
from millstream.streams.plan.types import TypeKind
from millstream.streams.sql.binder.scopes import nearest
from millstream.streams.sql.syntax.queries import ChangelogSource
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["converted_changes"]

_OP = "op"


def converted_changes(source: ChangelogSource, node: Node, script: Script) -> Node:
    """The rows of the call over `node`, the rows of its table. Raises SqlError."""
    names = node.schema.names
    for term in source.partition:
        if term.parts[0] not in names:
            raise _no_column(term.parts[0], names, term.span, script)
    first = tuple(term.parts[0] for term in source.partition)
    op = _OP if source.op is None else source.op.parts[0]
    span = source.span if source.op is None else source.op.span
    if source.function == "TO_CHANGELOG":
        if op in names:
            message = f'The table of TO_CHANGELOG has a column "{op}" already.'
            remedy = "Name the column of codes otherwise: op => DESCRIPTOR(kind)."
            raise script.error("SQL_TYPE", message, span, remedy=remedy)
        return ToChangelog(node, op, _codes(source, script), first)
    field = node.schema.find(op)
    if field is None:
        raise _no_column(op, names, span, script)
    if field.type.kind is not TypeKind.STRING:
        message = f'The codes of changes are texts, but "{op}" is {field.type}.'
        raise script.error("SQL_TYPE", message, span, remedy="Take CAST(... AS STRING) of it in a sub-query.")
    if op in first:
        message = f'"{op}" says what a change is, so it cannot be a key as well.'
        raise script.error("SQL_TYPE", message, span)
    return _changes(source, node, op, first, script)


def _codes(source: ChangelogSource, script: Script) -> tuple[tuple[int, str], ...]:
    """The code of each kind, by its number; one key of the map may name several kinds, joined by commas."""
    if not source.mapping:
        return tuple((kind.value, kind.name) for kind in RowKind)
    found: dict[int, str] = {}
    for kinds, code, span in source.mapping:
        for name in kinds.split(","):
            kind = _kind(name.strip(), span, script)
            if kind.value in found:
                raise script.error("SQL_TYPE", f"{kind.name} has two codes.", span)
            found[kind.value] = code
    return tuple(sorted(found.items()))


def _changes(source: ChangelogSource, node: Node, op: str, first: tuple[str, ...], script: Script) -> Node:
    """Rows as changes; where updates come without the row before, the last row of each key counts."""
    if changelog_of(node) is not Changelog.APPEND:
        message = "FROM_CHANGELOG takes a table of new rows, but the rows of this one change already."
        raise script.error("SQL_UNSUPPORTED", message, source.span, remedy="Use the table as it is.")
    kinds: dict[str, RowKind] = {}
    for codes, name, span in source.mapping:
        kind = _kind(name, span, script)
        if kind in kinds.values():
            message = f"{kind.name} stands twice in the map."
            raise script.error("SQL_TYPE", message, span, remedy=f"Join the codes: MAP['c, r', '{kind.name}'].")
        for code in map(str.strip, codes.split(",")):
            if code in kinds:
                raise script.error("SQL_TYPE", f"The code '{code}' stands twice in the map.", span)
            kinds[code] = kind
    kinds = kinds or {kind.name: kind for kind in RowKind}
    pairs = tuple((code, kind.value) for code, kind in kinds.items())
    changes = FromChangelog(node, op, pairs, first, fails=not source.skips)
    told = set(kinds.values())
    if RowKind.UPDATE_BEFORE in told or RowKind.UPDATE_AFTER not in told:
        return changes
    if not first:
        message = "Updates without the row before (UPDATE_BEFORE) need a key that says which row they replace."
        remedy = "Name it: input => TABLE t PARTITION BY key; or give UPDATE_BEFORE a code."
        raise script.error("SQL_TYPE", message, source.span, remedy=remedy)
    return Normalize(changes, first)


def _kind(name: str, span: Span, script: Script) -> RowKind:
    if name not in RowKind.__members__:
        listed = ", ".join(RowKind.__members__)
        message = f"'{name}' is no kind of change."
        raise script.error(
            "SQL_TYPE", message, span, remedy=nearest(name, list(RowKind.__members__)) or f"They are {listed}."
        )
    return RowKind[name]


def _no_column(name: str, names: tuple[str, ...], span: Span, script: Script) -> Exception:
    message = f'There is no column "{name}" in ({", ".join(names)}).'
    return script.error("SQL_UNKNOWN_COLUMN", message, span, remedy=nearest(name, list(names)) or None)
