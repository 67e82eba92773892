"""Whether a table can take what a query says of changing rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.streams.connectors.registry import connector_of
from millstream.streams.plan.aggregates import Aggregate, WindowAggregate
from millstream.streams.plan.changelog import CHANGELOG_FORMATS, ChangelogMode, changelog_of
from millstream.streams.plan.joins import Join, SetOperation
from millstream.streams.plan.nodes import Node, Normalize, Scan, inputs_of, with_inputs
from millstream.streams.plan.ordering import Over, Rank, Sort
from millstream.streams.plan.tables import Table
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["check_changes", "takes_upserts", "without_emit"]


def check_changes(table: Table, node: Node, span: Span, script: Script) -> None:
    """Refuse a query whose rows change where the table only takes new rows.

    `node` has the columns of `table.writable` by name. EMIT asks for rows that come again, so those are taken by any
    table. Raises SQL_UNSUPPORTED.
    """
    asked = without_emit(node)
    if changelog_of(asked) is ChangelogMode.APPEND or _takes_changes(table):
        return
    cause = _cause(asked)
    message = (
        f'Rows of this query change ({_clause_of(cause)}), but "{table.name}" ({table.connector}) only takes new rows.'
    )
    raise script.error("SQL_UNSUPPORTED", message, span, remedy=_ways_out(table, cause))


def takes_upserts(table: Table) -> bool:
    """Whether the table holds the last row of each value of its primary key."""
    connector = connector_of(table.connector)
    return connector.upserts and (connector.needs_key or bool(table.primary_key))


def _takes_changes(table: Table) -> bool:
    if connector_of(table.connector).shows_changes or takes_upserts(table):
        return True
    return any(table.options.get(option, "") in CHANGELOG_FORMATS for option in ("format", "value.format"))


def without_emit(node: Node) -> Node:
    """The query as if its windows told their rows once, at their ends."""
    inputs = inputs_of(node)
    below = with_inputs(node, tuple(map(without_emit, inputs))) if inputs else node
    return replace(below, emit=None) if isinstance(below, WindowAggregate) else below


def _cause(node: Node) -> Node:
    """The lowest node whose rows change though those below it do not."""
    changing = [below for below in inputs_of(node) if changelog_of(below) is ChangelogMode.RETRACT]
    return _cause(changing[0]) if changing else node


def _clause_of(node: Node) -> str:
    """What the user wrote for the node."""
    match node:
        case Aggregate(keys=keys, aggregates=aggregates):
            if not aggregates:
                return "DISTINCT rows"
            names = ", ".join(name for name, _ in keys)
            return f"GROUP BY {names} without a window" if keys else "an aggregate of all rows"
        case Join(kind=kind):
            return f"{kind.value} JOIN"
        case Rank(function=function):
            return f"{function}() with a filter"
        case SetOperation(kind=kind):
            return kind.value
        case Sort():
            return "ORDER BY with LIMIT"
        case Over():
            return "OVER by a time without a watermark"
        case Scan(table=table):
            return f"{table.name} is a table of changes"
        case Normalize(input=Scan(table=table)):
            return f"{table.name} is a table of upserts"
        case _:
            return type(node).__name__


def _ways_out(table: Table, cause: Node) -> str:
    ways = ["write to an upsert-rocketmq table with a PRIMARY KEY"]
    connector = connector_of(table.connector)
    if not CHANGELOG_FORMATS.isdisjoint(connector.formats):
        ways.append("choose a format of changes such as 'debezium-json'")
    if connector.upserts:
        ways = ["declare a PRIMARY KEY for the table"]
    if isinstance(cause, Aggregate):
        ways.append("group by a window, whose rows are final")
    if isinstance(cause, Join):
        ways.append("bound the times of both sides, so that the join's rows are final")
    ways.append("tell each change as a row of its own by TO_CHANGELOG(TABLE ...)")
    words = ", or ".join(ways)
    return f"{words[0].upper()}{words[1:]}."
