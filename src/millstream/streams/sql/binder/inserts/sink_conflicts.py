"""Rows of a query that the primary key of a sink does not tell apart: refused, or one of them chosen."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.conflicts import OnConflict, OnePerKey
from millstream.streams.plan.nodes import Node
from millstream.streams.plan.tables import Table
from millstream.streams.sql.binder.inserts.sink_changes import takes_upserts, without_emit
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.statements import Insert

__all__ = ["check_conflicts", "one_per_key"]


def check_conflicts(insert: Insert, table: Table, node: Node, told: frozenset[str] | None, script: Script) -> None:
    """Refuse ON CONFLICT where there is none, and a query without it whose rows are told apart by other columns alone.

    `told` are the columns that tell the rows of `node` apart; None: unknown. Raises SQL_UNSUPPORTED.
    """
    changes = changelog_of(without_emit(node)) is not Changelog.APPEND
    if insert.on_conflict is not None:
        _check_clause(insert, table, changes, script)
    elif changes and table.primary_key and told and told.isdisjoint(table.primary_key):
        ours, theirs = ", ".join(table.primary_key), ", ".join(sorted(told))
        message = (
            f'The primary key of "{table.name}" ({ours}) does not tell the rows of this query apart ({theirs} does).'
        )
        remedy = f"Declare PRIMARY KEY ({theirs}) NOT ENFORCED, group by {ours}, or add ON CONFLICT DO DEDUPLICATE."
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy=remedy)


def _check_clause(insert: Insert, table: Table, changes: bool, script: Script) -> None:
    if not takes_upserts(table):
        message = f'ON CONFLICT is for tables that are updated by a PRIMARY KEY, and "{table.name}" is not.'
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy="Leave it out.")
    if not changes:
        message = f'Rows of this query never change, so that the last one of each key counts in "{table.name}".'
        remedy = "Leave ON CONFLICT out, or keep the first row of each key by QUALIFY ROW_NUMBER() OVER (...) = 1."
        raise script.error("SQL_UNSUPPORTED", message, insert.span, remedy=remedy)


def one_per_key(
    node: Node,
    table: Table,
    told: frozenset[str] | None,
    on_conflict: OnConflict | None,
    settings: Mapping[str, str],
) -> Node:
    """`node` with one row for each primary key of the table, where rows that `told` tells apart may fall on it.

    Without ON CONFLICT the last one counts, as in Flink; a batch job's rows come once, the last replaces those before.
    """
    asked = settings.get("table.exec.sink.upsert-materialize", "auto").lower()
    if not takes_upserts(table) or changelog_of(without_emit(node)) is Changelog.APPEND:
        return node
    apart = told is not None and told <= set(table.primary_key)
    batch = settings.get("execution.runtime-mode", "streaming").lower() == "batch"
    needless = apart or (on_conflict is None and (batch or asked == "none"))
    return node if needless and asked != "force" else OnePerKey(node, table.primary_key, on_conflict or OnConflict.LAST)
