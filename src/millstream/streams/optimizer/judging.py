"""Conditions that move into the sources: what the filters right above a table ask is judged where its rows are made.

The source gives the numbers of the conditions that hold as a hidden column, filters become tests of it, and what
cannot be said by atoms stays behind them. Where all who read a table ask so, rows that none wants never leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.streams.functions.spec import array_of
from millstream.streams.optimizer.branch import branch_of, stored
from millstream.streams.optimizer.costs import spark_cost_us, stage_cost_us, stage_is_cheaper
from millstream.streams.plan.backends import Backend, backend_of
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.substitution import substituted
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, INT
from millstream.streams.plan.wanted import BRANCHES, IS_WANTED, WANTED
from millstream.streams.rules.formulas import Formula, Truth
from millstream.streams.rules.from_sql import CannotBeSaid, conjuncts_of, formula_of, split_conjuncts
from millstream.streams.rules.rule import MAX_RULES, Rule, RuleSet
from millstream.streams.sql.pruning import prune

__all__ = ["JUDGING_CONNECTORS", "Judged", "SourceStage", "Verdict", "judged", "refusal_of"]


@dataclass(frozen=True, slots=True)
class SourceStage:
    """What a table's source judges: `conditions` by their numbers, over its stored columns.

    With `drops` it gives only the rows that one of them wants.
    """

    conditions: tuple[Formula, ...]
    drops: bool

    def rule_set(self) -> RuleSet:
        """The conditions as rules; only hits are asked for."""
        rules = (Rule(str(number), "", one, kind="sql") for number, one in enumerate(self.conditions))
        return RuleSet(1, tuple(rules))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a table's conditions, for EXPLAIN. `stage` is what could be judged, whether it `is_used` or not.

    `why` says why not, blank where it is. `behind` are conditions that stay filters, with their reasons.
    """

    table: Table
    stage: SourceStage
    is_used: bool
    why: str
    behind: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """The nodes as rewritten, reading only what they still need, and the stages of their tables by name."""

    nodes: tuple[Node, ...]
    stages: dict[str, SourceStage]
    verdicts: tuple[Verdict, ...]


JUDGING_CONNECTORS: Final = ("rocketmq",)
"""Connectors whose sources decode rows in Python workers, where the stage can run."""


def refusal_of(table: Table) -> str:
    """Why a table's source judges nothing, blank where it can."""
    if table.connector in JUDGING_CONNECTORS:
        return ""
    return f"sources of the connector '{table.connector}' judge nothing"


def judged(nodes: Sequence[Node], mode: str, *, has_engine: bool = True) -> Judged:
    """The nodes with what their sources can judge. `mode` is auto, always or never.

    `has_engine` says whether there is an engine that finds many patterns in one pass; without it auto judges nothing.
    """
    tables: dict[str, Table] = {}
    for scan in (scan for node in nodes for scan in scans_of(node)):
        tables.setdefault(scan.table.name, scan.table)
    tried = _Judging(frozenset(tables))
    moved = tried.outputs(nodes)
    found = [(table, tried.of(name)) for name, table in tables.items()]
    verdicts = tuple(_verdict(table, conditions, mode, has_engine=has_engine) for table, conditions in found)
    used = {verdict.table.name: verdict.stage for verdict in verdicts if verdict.is_used}
    if not used:
        return Judged(tuple(nodes), {}, verdicts)
    if any(conditions.formulas and table.name not in used for table, conditions in found):
        moved = _Judging(frozenset(used)).outputs(nodes)
    return Judged(moved, used, verdicts)


def _verdict(table: Table, found: _Conditions, mode: str, *, has_engine: bool) -> Verdict:
    stage = SourceStage(tuple(found.formulas), drops=not found.all_rows)
    why = refusal_of(table)
    if why:
        pass
    elif not stage.conditions:
        why = "no condition can be said by atoms"
    elif len(stage.conditions) > MAX_RULES:
        why = f"there are more than {MAX_RULES} conditions"
    elif mode == "never":
        why = "'millstream.rules.stage' is never"
    elif mode == "auto" and not has_engine:
        why = "hyperscan is not installed"
    elif mode == "auto" and not stage_is_cheaper(stage.conditions):
        in_stage, in_spark = stage_cost_us(stage.conditions), spark_cost_us(stage.conditions)
        why = f"it would cost about {in_stage:.1f} us a row, filters of Spark {in_spark:.1f} us"
    return Verdict(table, stage, not why, why, tuple(found.behind))


@dataclass(slots=True)
class _Conditions:
    """Those of one table. `all_rows`: somebody reads it without a condition, or moves event time by its rows."""

    formulas: list[Formula] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    all_rows: bool = False


class _Judging:
    """One pass over the outputs, which moves the conditions on the tables of those names."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self.found: dict[str, _Conditions] = {}

    def of(self, name: str) -> _Conditions:
        return self.found.setdefault(name, _Conditions())

    def outputs(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        moved = []
        for node in nodes:
            if _keeps_state(node):
                for scan in scans_of(node):
                    self.of(scan.table.name).all_rows = True
            rewritten = self._node(node)
            moved.append(node if rewritten == node else prune(rewritten))
        return tuple(moved)

    def _node(self, node: Node) -> Node:
        if isinstance(node, FanOut) and isinstance(node.input, Scan) and node.input.table.name in self._names:
            return self._fan_out(node, node.input)
        branch = branch_of(node)
        if branch is not None and branch.scan.table.name in self._names:
            return self._branch(node, branch.scan)
        if isinstance(node, Scan):
            self.of(node.table.name).all_rows = True
            return node
        return with_inputs(node, tuple(map(self._node, inputs_of(node))))

    def _fan_out(self, node: FanOut, scan: Scan) -> Node:
        """All of its conditions, or none: they are merged by whether they can be said."""
        conditions = self.of(scan.table.name)
        assert isinstance(node.branches, Call)
        assert node.branches.function == BRANCHES
        try:
            formulas = [formula_of(stored(one, scan.table)) for one in node.branches.arguments]
        except CannotBeSaid as refusal:
            conditions.all_rows = True
            conditions.behind.append(f"a branch of {len(node.branches.arguments)}: {refusal}")
            return node
        first = len(conditions.formulas)
        conditions.formulas += formulas
        bounds = (Literal(first, INT), Literal(first + len(formulas), INT))
        return FanOut(scan, Call(WANTED, bounds, array_of(INT)), node.constants)

    def _branch(self, node: Node, scan: Scan) -> Node:
        branch = branch_of(node)
        assert branch is not None
        conditions = self.of(scan.table.name)
        parts = split_conjuncts([stored(one, scan.table) for one in branch.conditions])
        conditions.behind += parts.reasons
        if parts.said == Truth(True):
            conditions.all_rows = True
            return node
        number = len(conditions.formulas)
        conditions.formulas.append(parts.said)
        test = Filter(scan, Call(IS_WANTED, (Literal(number, INT),), BOOLEAN))
        return _without(node, frozenset(parts.rest), test)


def _without(node: Node, rest: frozenset[Expression], bottom: Node) -> Node:
    """The branch over `bottom` in the place of its scan, asking only what is in `rest`."""
    chain: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        chain.append(node)
        node = node.input
    assert isinstance(node, Scan)
    values: dict[str, Expression] = {of.name: Column(of.name, of.type) for of in node.schema.fields}
    made = bottom
    for one in reversed(chain):
        if isinstance(one, Project):
            values = {name: substituted(value, values) for name, value in one.columns}
            made = with_inputs(one, (made,))
            continue
        kept = [part for part in conjuncts_of(one.predicate) if stored(substituted(part, values), node.table) in rest]
        if kept:
            made = Filter(made, kept[0] if len(kept) == 1 else Call("AND", tuple(kept), BOOLEAN))
    return made


def _keeps_state(node: Node) -> bool:
    return backend_of(node) is not Backend.COLUMNS or any(map(_keeps_state, inputs_of(node)))
