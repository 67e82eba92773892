"""Pushes conditions into sources, by their cost there and in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.streams.connectors.registry import connector_of
from millstream.streams.functions.spec import array_of
from millstream.streams.optimizer.prune_columns import prune_columns
from millstream.streams.plan.backends import NodeBackend, backend_of
from millstream.streams.plan.branch import branch_of, to_stored_columns
from millstream.streams.plan.expressions import (
    BRANCHES,
    IS_WANTED,
    WANTED,
    Call,
    Column,
    Expression,
    Literal,
    operands_of_and,
    substitute,
)
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, inputs_of, scans_of, with_inputs
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BOOLEAN, INT
from millstream.streams.rules.conditions import All, AnyOf, Condition, Not, Op, Predicate, Truth, predicates_of
from millstream.streams.rules.rule import MAX_RULES, Rule, RuleSet
from millstream.streams.rules_sql.from_sql import InexpressibleCondition, condition_of, split_conjuncts

__all__ = [
    "PushdownDecision",
    "PushedPredicates",
    "SourceStage",
    "push_predicates",
    "refusal_of",
    "spark_cost_us",
    "stage_cost_us",
    "stage_is_cheaper",
]


PATTERN_US: Final = 1.3
"""A regular expression on a row in Spark: 100 of them on lines of 112 characters make 7,700 rows a core and second."""

TEXT_US: Final = 0.1
"""A search for a text, or a text made smaller, on a row in Spark."""

PLAIN_US: Final = 0.02
"""A comparison on a row in Spark."""

CALL_US: Final = 2.0
"""A function that Spark asks a Python worker for, with its share of the batch's way there and back."""

STAGE_US: Final = 0.5
"""What the stage does for each row, whatever it is asked: the answers become a column, which crosses into the JVM."""

FIELD_US: Final = 1.0
"""What each field adds in the stage: its different values (here all of them, of 100 characters) are found and looked
up, 1 pattern or 1,000 in one pass."""

ATOM_US: Final = 0.01
"""What each different atom adds in the stage, where it holds for some rows."""

NEGATION_US: Final = 0.2
"""What each condition adds in the stage that may hold although none of its atoms does: it is looked at in every row."""

_TEXT_OPS = frozenset({Op.CONTAINS, Op.STARTS, Op.ENDS})


def spark_cost_us(formulas: Iterable[Condition]) -> float:
    """Microseconds a row where Spark asks each condition by itself: nothing is shared."""
    return sum(_cost_us(predicate) for formula in formulas for predicate in predicates_of(formula))


def stage_cost_us(formulas: Iterable[Condition]) -> float:
    """Microseconds a row where a stage asks all of them."""
    conditions = tuple(formulas)
    atoms = {predicate for formula in conditions for predicate in predicates_of(formula)}
    negations = sum(1 for formula in conditions if not _needs_atom(formula))
    return (
        STAGE_US
        + FIELD_US * len({predicate.field for predicate in atoms})
        + ATOM_US * len(atoms)
        + NEGATION_US * negations
    )


def stage_is_cheaper(formulas: Iterable[Condition]) -> bool:
    """Whether a source should judge the conditions itself."""
    conditions = tuple(formulas)
    return stage_cost_us(conditions) < spark_cost_us(conditions)


def _needs_atom(formula: Condition) -> bool:
    """Whether the formula is never true unless one of its atoms is."""
    match formula:
        case Predicate(absent=absent):
            return not absent
        case All(parts=parts):
            return any(map(_needs_atom, parts))
        case AnyOf(parts=parts):
            return all(map(_needs_atom, parts))
        case Truth(value=value):
            return not value
        case Not():
            return False


def _cost_us(predicate: Predicate) -> float:
    match predicate.op:
        case Op.MATCHES:
            return PATTERN_US
        case Op.CALL:
            return CALL_US
        case op:
            return TEXT_US if op in _TEXT_OPS or predicate.steps else PLAIN_US


@dataclass(frozen=True, slots=True)
class SourceStage:
    """What a table's source evaluates: `conditions` by their numbers, over its stored columns.

    With `drops` it gives only the rows that one of them wants.
    """

    conditions: tuple[Condition, ...]
    drops: bool

    def rule_set(self) -> RuleSet:
        """The conditions as rules; only hits are asked for."""
        rules = (Rule(str(number), "", one, kind="sql") for number, one in enumerate(self.conditions))
        return RuleSet(1, tuple(rules))


@dataclass(frozen=True, slots=True)
class PushdownDecision:
    """What became of a table's conditions, for EXPLAIN."""

    table: Table
    stage: SourceStage
    """What the source could evaluate, whether it does or not."""
    is_used: bool
    why: str
    """Why the source evaluates nothing; blank where it does."""
    residual: tuple[str, ...]
    """Why conditions stay filters, one reason for each."""


@dataclass(frozen=True, slots=True)
class PushedPredicates:
    """What `push_predicates` makes of nodes."""

    nodes: tuple[Node, ...]
    """As rewritten, reading only what they still need."""
    stages: dict[str, SourceStage]
    """What the sources evaluate, by the names of their tables."""
    decisions: tuple[PushdownDecision, ...]


def refusal_of(table: Table) -> str:
    """Why a table's source judges nothing, blank where it can."""
    if connector_of(table.connector).judges:
        return ""
    return f"sources of the connector '{table.connector}' judge nothing"


def push_predicates(nodes: Sequence[Node], mode: str, *, has_engine: bool = True) -> PushedPredicates:
    """The nodes with what their sources can evaluate. `mode` is auto, always or never.

    `has_engine` says whether there is an engine that finds many patterns in one pass; without it auto judges nothing.
    """
    tables: dict[str, Table] = {}
    for scan in (scan for node in nodes for scan in scans_of(node)):
        tables.setdefault(scan.table.name, scan.table)
    tried = _Pushdown(frozenset(tables))
    moved = tried.outputs(nodes)
    found = [(table, tried.of(name)) for name, table in tables.items()]
    decisions = tuple(_decide(table, conditions, mode, has_engine=has_engine) for table, conditions in found)
    used = {one.table.name: one.stage for one in decisions if one.is_used}
    if not used:
        return PushedPredicates(tuple(nodes), {}, decisions)
    if any(conditions.formulas and table.name not in used for table, conditions in found):
        moved = _Pushdown(frozenset(used)).outputs(nodes)
    return PushedPredicates(moved, used, decisions)


def _decide(table: Table, found: _Conditions, mode: str, *, has_engine: bool) -> PushdownDecision:
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
    return PushdownDecision(table, stage, not why, why, tuple(found.residual))


@dataclass(slots=True)
class _Conditions:
    """Those of one table. `all_rows`: somebody reads it without a condition, or moves event time by its rows."""

    formulas: list[Condition] = field(default_factory=list)
    residual: list[str] = field(default_factory=list)
    all_rows: bool = False


class _Pushdown:
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
            moved.append(node if rewritten == node else prune_columns(rewritten))
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
            formulas = [condition_of(to_stored_columns(one, scan.table)) for one in node.branches.arguments]
        except InexpressibleCondition as refusal:
            conditions.all_rows = True
            conditions.residual.append(f"a branch of {len(node.branches.arguments)}: {refusal}")
            return node
        first = len(conditions.formulas)
        conditions.formulas += formulas
        bounds = (Literal(first, INT), Literal(first + len(formulas), INT))
        return FanOut(scan, Call(WANTED, bounds, array_of(INT)), node.constants)

    def _branch(self, node: Node, scan: Scan) -> Node:
        branch = branch_of(node)
        assert branch is not None
        conditions = self.of(scan.table.name)
        parts = split_conjuncts([to_stored_columns(one, scan.table) for one in branch.conditions])
        conditions.residual += parts.reasons
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
            values = {name: substitute(value, values) for name, value in one.columns}
            made = with_inputs(one, (made,))
            continue
        parts = operands_of_and(one.predicate)
        kept = [part for part in parts if to_stored_columns(substitute(part, values), node.table) in rest]
        if kept:
            made = Filter(made, kept[0] if len(kept) == 1 else Call("AND", tuple(kept), BOOLEAN))
    return made


def _keeps_state(node: Node) -> bool:
    return backend_of(node) is not NodeBackend.COLUMNS or any(map(_keeps_state, inputs_of(node)))
