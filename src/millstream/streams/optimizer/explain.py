"""EXPLAIN output about pushed-down conditions, merged outputs, and state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from millstream.streams.optimizer.merge_queries import sink_keys
from millstream.streams.optimizer.passes import PipelinePlan, rewrite_pipeline
from millstream.streams.optimizer.predicate_pushdown import PushdownDecision
from millstream.streams.plan.nodes import Node, Sink, inputs_of
from millstream.streams.plan.state_forms import StateForm, form_of
from millstream.streams.rules.conditions import OF_TWO_FIELDS, Op, Predicate, predicates_of

__all__ = ["MAX_REASONS", "explain_query", "explain_sinks"]

MAX_REASONS: Final = 10
"""Conditions that stay filters, of which EXPLAIN gives the reasons for one table; the others are counted."""

_ENGINES = {
    Op.IN: "sets", Op.LESS: "ranges", Op.LESS_EQUAL: "ranges", Op.GREATER: "ranges", Op.GREATER_EQUAL: "ranges",
    Op.CONTAINS: "patterns", Op.STARTS: "patterns", Op.ENDS: "patterns", Op.MATCHES: "patterns", Op.CIDR: "networks",
    Op.IS_NULL: "presence", Op.EXISTS: "presence", **dict.fromkeys(OF_TWO_FIELDS, "fields"), Op.CALL: "functions",
}  # fmt: skip


def explain_sinks(sinks: Sequence[Sink], settings: dict[str, str]) -> list[str]:
    """The lines about the INSERTs of one job; none without conditions right above a table and without state."""
    keys = sink_keys([None if sink.overwrites else sink.table for sink in sinks])
    plan = _rewrite([(sink.input, key) for sink, key in zip(sinks, keys, strict=True)], settings)
    merged = [
        f"Merged: {len(one.numbers)} INSERTs into {sinks[one.numbers[0]].table.name} of one shape run as one"
        for one in plan.queries
        if len(one.numbers) > 1
    ]
    return merged + _of_decisions(plan) + _of_state([sink.input for sink in sinks])


def explain_query(query: Node, settings: dict[str, str]) -> list[str]:
    """The same of a SELECT."""
    return _of_decisions(_rewrite([(query, None)], settings)) + _of_state([query])


def _rewrite(outputs: Sequence[tuple[Node, Hashable]], settings: dict[str, str]) -> PipelinePlan:
    return rewrite_pipeline(outputs, settings.get("millstream.rules.stage", "auto").lower())


def _of_state(roots: Sequence[Node]) -> list[str]:
    """The operators with state by the ids under which a changed query finds it; equal ones are counted."""
    seen: Counter[str] = Counter()
    lines = []
    for form in (form for root in roots for form in _forms(root)):
        seen[form.id] += 1
        again = "" if seen[form.id] == 1 else f"-{seen[form.id]}"
        lines.append(f"State {form.id}{again}: {form}")
    return lines


def _forms(node: Node) -> Iterator[StateForm]:
    for below in inputs_of(node):
        yield from _forms(below)
    form = form_of(node)
    if form is not None:
        yield form


def _of_decisions(plan: PipelinePlan) -> list[str]:
    return [line for decision in plan.decisions for line in _of_table(decision)]


def _of_table(decision: PushdownDecision) -> Iterator[str]:
    conditions = decision.stage.conditions
    if not conditions and not decision.residual:
        return
    uses = Counter(predicate for condition in conditions for predicate in dict.fromkeys(predicates_of(condition)))
    shared = sum(1 for count in uses.values() if count > 1)
    state = "judges" if decision.is_used else "does not judge"
    numbers = f"{_count_text(len(conditions), 'condition')}: {_count_text(len(uses), 'atom')}, {shared} shared"
    yield f"Source stage of {decision.table.name}: {state} {numbers}"
    if decision.why:
        yield f"  because {decision.why}"
    if decision.is_used:
        yield from _of_fields(uses)
        left = "stay in it" if decision.stage.drops else "leave it for those who read all"
        yield f"  rows that no condition wants {left}"
    yield from (f"  stays a filter: {reason}" for reason in decision.residual[:MAX_REASONS])
    if len(decision.residual) > MAX_REASONS:
        yield f"  and {len(decision.residual) - MAX_REASONS} more stay filters"


def _of_fields(atoms: Counter[Predicate]) -> Iterator[str]:
    by_field: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for predicate in atoms:
        by_field[predicate.field][_ENGINES[predicate.op]] += 1
    for field, engines in by_field.items():
        shown = ", ".join(f"{engine} {count}" for engine, count in sorted(engines.items()))
        yield f"  {field}: {_count_text(engines.total(), 'atom')} ({shown})"


def _count_text(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
