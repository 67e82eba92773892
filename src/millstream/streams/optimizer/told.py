"""What EXPLAIN says of conditions that sources judge, and of outputs that are merged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from millstream.streams.optimizer.judging import Verdict, judged
from millstream.streams.optimizer.merging import merged, sink_keys
from millstream.streams.plan.nodes import Node, Sink
from millstream.streams.rules.atoms import OF_TWO_FIELDS, Atom, Op
from millstream.streams.rules.formulas import atoms_of

__all__ = ["MAX_TOLD", "stage_lines", "stage_lines_of_query"]

MAX_TOLD: Final = 10
"""Conditions that stay filters, of which EXPLAIN tells the reasons for one table; the others are counted."""

_ENGINES = {
    Op.IN: "sets", Op.LESS: "ranges", Op.LESS_EQUAL: "ranges", Op.GREATER: "ranges", Op.GREATER_EQUAL: "ranges",
    Op.CONTAINS: "patterns", Op.STARTS: "patterns", Op.ENDS: "patterns", Op.MATCHES: "patterns", Op.CIDR: "networks",
    Op.IS_NULL: "presence", Op.EXISTS: "presence", **dict.fromkeys(OF_TWO_FIELDS, "fields"), Op.CALL: "functions",
}  # fmt: skip


def stage_lines(sinks: Sequence[Sink], settings: dict[str, str]) -> list[str]:
    """The lines about the INSERTs of one job; none where no condition stands right above a table."""
    keys = sink_keys([None if sink.overwrites else sink.table for sink in sinks])
    together = merged([(sink.input, key) for sink, key in zip(sinks, keys, strict=True)])
    lines = [
        f"Merged: {len(one.numbers)} INSERTs into {sinks[one.numbers[0]].table.name} of one shape run as one"
        for one in together
        if len(one.numbers) > 1
    ]
    return lines + _of_nodes([one.node for one in together], settings)


def stage_lines_of_query(query: Node, settings: dict[str, str]) -> list[str]:
    """The same of a SELECT."""
    return _of_nodes([query], settings)


def _of_nodes(nodes: Sequence[Node], settings: dict[str, str]) -> list[str]:
    found = judged(nodes, settings.get("millstream.rules.stage", "auto").lower())
    return [line for verdict in found.verdicts for line in _of_table(verdict)]


def _of_table(verdict: Verdict) -> Iterator[str]:
    conditions = verdict.stage.conditions
    if not conditions and not verdict.behind:
        return
    asked = Counter(atom for condition in conditions for atom in dict.fromkeys(atoms_of(condition)))
    shared = sum(1 for count in asked.values() if count > 1)
    state = "judges" if verdict.is_used else "does not judge"
    numbers = f"{_counted(len(conditions), 'condition')}: {_counted(len(asked), 'atom')}, {shared} shared"
    yield f"Source stage of {verdict.table.name}: {state} {numbers}"
    if verdict.why:
        yield f"  because {verdict.why}"
    if verdict.is_used:
        yield from _of_fields(asked)
        left = "stay in it" if verdict.stage.drops else "leave it for those who read all"
        yield f"  rows that no condition wants {left}"
    yield from (f"  stays a filter: {reason}" for reason in verdict.behind[:MAX_TOLD])
    if len(verdict.behind) > MAX_TOLD:
        yield f"  and {len(verdict.behind) - MAX_TOLD} more stay filters"


def _of_fields(atoms: Counter[Atom]) -> Iterator[str]:
    by_field: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for atom in atoms:
        by_field[atom.field][_ENGINES[atom.op]] += 1
    for field, engines in by_field.items():
        told = ", ".join(f"{engine} {count}" for engine, count in sorted(engines.items()))
        yield f"  {field}: {_counted(engines.total(), 'atom')} ({told})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
