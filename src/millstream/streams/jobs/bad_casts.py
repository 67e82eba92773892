"""What becomes of rows in which a CAST fails, as `millstream.bad-cast` says.

`null`: the value is NULL. `dead-letter`: the row goes to the dead-letter topic of the table it comes from, with the
reason among its properties, and on no other way. `fail`: the job ends. The last two look at projections and conditions
between a table and the first node that keeps state; behind that, and in computed columns, a bad CAST gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.streams.connectors.registry import connector_of
from millstream.streams.connectors.rocketmq.sink import SEND_TIMEOUT_S, MessageMaker, TopicSink
from millstream.streams.functions.failing_casts import FailingCast, failing_casts
from millstream.streams.functions.spec import map_of
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.settings import JobSettings, SourceSettings
from millstream.streams.plan.changelog import Changelog, changelog_of
from millstream.streams.plan.expressions import Call, Case, Column, Expression, Literal
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, STRING
from millstream.streams.spark.source.topic_log import open_log

__all__ = ["CastLetters", "cast_letters", "strict", "with_bad_casts"]

_PROPERTIES = "__properties"
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class CastLetters:
    """Rows of `table` in which a CAST fails: their columns, then the properties that tell why."""

    table: Table
    node: Node


def with_bad_casts(outputs: Sequence[Output], settings: JobSettings) -> list[Output]:
    """The outputs with what the job asks for; one more for each place from which rows go to a dead-letter topic."""
    if settings.bad_cast == "fail":
        return [replace(output, node=strict(output.node)) for output in outputs]
    if settings.bad_cast != "dead-letter":
        return list(outputs)
    changed, letters = [], []
    for output in outputs:
        node, found = cast_letters(output.node)
        changed.append(replace(output, node=node))
        letters += found
    return changed + [_output(one, settings) for one in letters]


def strict(node: Node) -> Node:
    """The node, which ends the job where a CAST fails."""
    below = with_inputs(node, tuple(strict(one) for one in inputs_of(node)))
    found = _casts_of(below)
    if not found:
        return below
    failed = Call("FAIL", (_reason(found),), BOOLEAN)
    passed = Case(((_failed(found), failed),), Literal(True, BOOLEAN), BOOLEAN)
    return with_inputs(below, (Filter(inputs_of(below)[0], passed),))


def cast_letters(node: Node) -> tuple[Node, list[CastLetters]]:
    """The node without the rows in which a CAST fails, and those rows."""
    pairs = [cast_letters(one) for one in inputs_of(node)]
    below = with_inputs(node, tuple(one for one, _ in pairs))
    letters = [letter for _, found in pairs for letter in found]
    found = _casts_of(below)
    table = next((scan.table for scan in scans_of(below)), None)
    if not found or table is None or _topic_of(table) is None:
        return below, letters
    source, failed = inputs_of(below)[0], _failed(found)
    letters.append(CastLetters(table, _letter(Filter(source, failed), found, table)))
    return with_inputs(below, (Filter(source, Call("NOT", (failed,), BOOLEAN)),)), letters


def _casts_of(node: Node) -> list[FailingCast]:
    """Those of a projection or a condition that stands on a table without any state between them."""
    if not isinstance(node, Project | Filter) or not _is_plain(node.input):
        return []
    expressions = [node.predicate] if isinstance(node, Filter) else [value for _, value in node.columns]
    return [found for expression in expressions for found in failing_casts(expression)]


def _is_plain(node: Node) -> bool:
    if isinstance(node, Scan):
        return changelog_of(node) is Changelog.APPEND
    return isinstance(node, Project | Filter) and _is_plain(node.input)


def _failed(found: Sequence[FailingCast]) -> Expression:
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


def _topic_of(table: Table) -> str | None:
    if not connector_of(table.connector).dead_letters:
        return None
    return table.options.get("dead-letter.topic", f"{table.options['topic']}_dead_letter")


def _letter(rows: Filter, found: Sequence[FailingCast], table: Table) -> Node:
    told = (
        *(Literal("reason", STRING), _reason(found)),
        *(Literal("source_topic", STRING), Literal(table.options["topic"], STRING)),
    )
    columns = tuple((field.name, Column(field.name, field.type)) for field in rows.schema.fields)
    return Project(rows, (*columns, (_PROPERTIES, Call("MAP", told, map_of(STRING, STRING)))))


def _output(letters: CastLetters, settings: JobSettings) -> Output:
    """The sink of the rows; its topic is made if it is not there."""
    topic = _topic_of(letters.table) or ""
    source = SourceSettings.of(letters.table, settings)
    log = open_log(source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    try:
        log.ensure_topic(topic)
    finally:
        log.close()
    maker = MessageMaker(topic, letters.node.schema, ((_PROPERTIES, "properties"),))
    sink = TopicSink(topic, maker, source.nameserver, timeout_s=SEND_TIMEOUT_S, access=source.access)
    return Output(letters.node, sink)
