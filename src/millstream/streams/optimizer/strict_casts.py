"""Strict casts: a failure ends the job, or sends the row to a dead-letter topic.

Both look at projections and conditions between a table and the first node that keeps state; behind that, and in
computed columns, a bad CAST gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.streams.connectors.registry import connector_of
from millstream.streams.functions.casting import FailingCast, failing_casts
from millstream.streams.functions.spec import map_of
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Case, Column, Expression, Literal
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, STRING

__all__ = ["PROPERTIES", "BadCastRows", "dead_letter_topic_of", "divert_bad_casts", "fail_on_bad_casts"]

PROPERTIES: Final = "__properties"
"""The column of diverted rows that holds the properties of their messages."""

_SHOWN_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True)
class BadCastRows:
    """Rows of `table` in which a CAST fails: their columns, then `PROPERTIES`, which say why."""

    table: Table
    node: Node


def fail_on_bad_casts(node: Node) -> Node:
    """The node, which ends the job where a CAST fails."""
    below = with_inputs(node, tuple(fail_on_bad_casts(one) for one in inputs_of(node)))
    found = _casts_of(below)
    if not found:
        return below
    failed = Call("FAIL", (_reason(found),), BOOLEAN)
    passed = Case(((_failure_condition_of(found), failed),), Literal(True, BOOLEAN), BOOLEAN)
    return with_inputs(below, (Filter(inputs_of(below)[0], passed),))


def divert_bad_casts(node: Node) -> tuple[Node, list[BadCastRows]]:
    """The node without the rows in which a CAST fails, and those rows."""
    pairs = [divert_bad_casts(one) for one in inputs_of(node)]
    below = with_inputs(node, tuple(one for one, _ in pairs))
    letters = [letter for _, found in pairs for letter in found]
    found = _casts_of(below)
    table = next((scan.table for scan in scans_of(below)), None)
    if not found or table is None or dead_letter_topic_of(table) is None:
        return below, letters
    source, failed = inputs_of(below)[0], _failure_condition_of(found)
    letters.append(BadCastRows(table, _letter(Filter(source, failed), found, table)))
    return with_inputs(below, (Filter(source, Call("NOT", (failed,), BOOLEAN)),)), letters


def _casts_of(node: Node) -> list[FailingCast]:
    """Those of a projection or a condition that stands on a table without any state between them."""
    if not isinstance(node, Project | Filter) or not _is_plain(node.input):
        return []
    expressions = [node.predicate] if isinstance(node, Filter) else [value for _, value in node.columns]
    return [found for expression in expressions for found in failing_casts(expression)]


def _is_plain(node: Node) -> bool:
    if isinstance(node, Scan):
        return changelog_of(node) is ChangelogMode.APPEND
    return isinstance(node, Project | Filter) and _is_plain(node.input)


def _failure_condition_of(found: Sequence[FailingCast]) -> Expression:
    conditions = tuple(one.condition for one in found)
    any_of = conditions[0] if len(conditions) == 1 else Call("OR", conditions, BOOLEAN)
    return Call("COALESCE", (any_of, Literal(False, BOOLEAN)), BOOLEAN)


def _reason(found: Sequence[FailingCast]) -> Expression:
    """Which CAST failed first."""
    return Case(tuple((one.condition, Literal(_words(one), STRING)) for one in found), None, STRING)


def _words(found: FailingCast) -> str:
    """The CAST as a message's property takes it."""
    text = "".join(character if character.isprintable() else " " for character in str(found.cast))
    return f"{text[:_SHOWN_CHARACTERS]} failed"


def dead_letter_topic_of(table: Table) -> str | None:
    """Where rows of the table go whose CAST fails; None for a table that is no topic."""
    if not connector_of(table.connector).dead_letters:
        return None
    return table.options.get("dead-letter.topic", f"{table.options['topic']}_dead_letter")


def _letter(rows: Filter, found: Sequence[FailingCast], table: Table) -> Node:
    properties = (
        *(Literal("reason", STRING), _reason(found)),
        *(Literal("source_topic", STRING), Literal(table.options["topic"], STRING)),
    )
    columns = tuple((field.name, Column(field.name, field.type)) for field in rows.schema.fields)
    return Project(rows, (*columns, (PROPERTIES, Call("MAP", properties, map_of(STRING, STRING)))))
