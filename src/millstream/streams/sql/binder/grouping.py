"""Binds GROUP BY, with or without a window, and the names visible above it.

GROUP BY taken apart: the keys, the sets of them that GROUPING SETS, CUBE and ROLLUP ask for, and GROUPING().
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.expressions import Call, Case, Column, Expression, Literal, columns_of
from millstream.streams.plan.nodes import Filter, Node, WindowRows
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT
from millstream.streams.plan.windows import Attached, Session, Tumble, Window
from millstream.streams.sql.binder.aggregate_calls import bind_aggregate, check_users_aggregates
from millstream.streams.sql.binder.query_context import QueryContext, state_ttl_ms
from millstream.streams.sql.binder.relations import Relation, as_columns, fresh_name, scope_of
from millstream.streams.sql.binder.scalars import WINDOW_CALLS, bind_term
from millstream.streams.sql.binder.scopes import GroupWindow, Scope
from millstream.streams.sql.binder.windows.window_functions import (
    BOUNDS,
    WindowColumns,
    group_window,
    window_columns,
    with_window_time,
)
from millstream.streams.sql.syntax.expressions import CallTerm, LiteralTerm, NameTerm, RowTerm, Term
from millstream.streams.sql.syntax.queries import GroupingSets, Select
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.terms import aggregates_of, identity

__all__ = ["MAX_GROUPING_SETS", "ExpandedKeys", "bind_grouped", "expand_sets", "sets_of"]

MAX_GROUPING_SETS = 256
"""Copies of each row that one GROUP BY may ask for."""


def sets_of(select: Select, script: Script) -> list[list[Term]]:
    """The sets of terms that are grouped by: one for a plain GROUP BY. Raises SQL_UNSUPPORTED at too many."""
    choices: list[Sequence[tuple[Term, ...]]] = []
    for group in select.groups:
        if isinstance(group, GroupingSets):
            choices.append(group.sets)
        else:
            choices.append(((*group.values,),) if isinstance(group, RowTerm) else ((group,),))
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_GROUPING_SETS:
        message = f"GROUP BY asks for {count} grouping sets; at most {MAX_GROUPING_SETS} are possible."
        raise script.error("SQL_UNSUPPORTED", message, select.groups[0].span)
    return [[term for chosen in combination for term in chosen] for combination in product(*choices)]


@dataclass(frozen=True)
class ExpandedKeys:
    """Rows copied for each grouping set: the column that stands for each key, NULL outside of its sets.

    `number` is the column that tells the sets apart.
    """

    node: Node
    columns: dict[Expression, Column]
    number: Column
    sets: tuple[frozenset[Expression], ...]

    def grouping(self, asked: Sequence[Expression], number: Column) -> Expression | None:
        """GROUPING_ID of the expressions where the column `number` tells the sets; None if one is no key."""
        return _bits(asked, number, self.sets)


def expand_sets(node: Node, keys: Sequence[Expression], sets: Sequence[frozenset[Expression]]) -> ExpandedKeys:
    """Each row once per set; `keys` are those that are not in all sets."""
    used_names = set(node.schema.names)
    names = [fresh_name(key.name if isinstance(key, Column) else "key", used_names) for key in keys]
    number = fresh_name("grouping_set", used_names)
    fields = node.schema.fields
    own = tuple(Column(of.name, of.type) for of in fields)
    projections = tuple(
        (
            *own,
            *(key if key in chosen else Literal(None, key.type.as_nullable()) for key in keys),
            Literal(place, INT.as_nullable(False)),
        )
        for place, chosen in enumerate(sets)
    )
    rowtime = frozenset(of.name for of in fields if of.rowtime)
    copied = Expand(node, (*node.schema.names, *names, number), projections, rowtime)
    columns = {key: Column(name, key.type.as_nullable()) for key, name in zip(keys, names, strict=True)}
    return ExpandedKeys(copied, columns, Column(number, INT), tuple(sets))


def _bits(asked: Sequence[Expression], number: Column, sets: Sequence[frozenset[Expression]]) -> Expression | None:
    """A bit for each expression, the last one lowest: 1 in the sets without it; None if one is in no set."""
    if any(all(value not in chosen for chosen in sets) for value in asked):
        return None
    not_null = BIGINT.as_nullable(False)
    branches = []
    for place, chosen in enumerate(sets):
        bits = 0
        for value in asked:
            bits = bits * 2 + (value not in chosen)
        same = Call("=", (number, Literal(place, INT.as_nullable(False))), BOOLEAN)
        branches.append((same, Literal(bits if asked else place, not_null)))
    return Case(tuple(branches), Literal(0, not_null), not_null)


@dataclass
class _Grouping:
    """One GROUP BY on its way: the rows below, the keys and calls so far, and what stands for what above."""

    node: Node
    window: Window | None = None
    group_window: object = None
    common: list[Expression] = field(default_factory=list)
    sets: list[frozenset[Expression]] = field(default_factory=list)
    other: list[Expression] = field(default_factory=list)
    above: dict[Expression, Expression] = field(default_factory=dict)
    calls: dict[object, AggregateCall] = field(default_factory=dict)
    copies: ExpandedKeys | None = None


def bind_grouped(
    select: Select,
    terms: Sequence[Term],
    relation: Relation,
    values: Mapping[object, Expression],
    context: QueryContext,
) -> tuple[Node, Scope]:
    """The grouped rows, and the scope of HAVING and of the `terms`, which stand in SELECT and ORDER BY.

    `values` are those of sub-queries inside of keys and aggregates.
    """
    scope = replace(scope_of(relation, context.script, "GROUP BY"), replaced=values)
    grouping = _Grouping(relation.node)
    _bind_keys(grouping, select, scope)
    called = [*aggregates_of(tuple(terms), context.script), *aggregates_of(select.having, context.script)]
    for term in called:
        if identity(term) not in grouping.calls:
            grouping.calls[identity(term)] = bind_aggregate(term, scope)
    _choose_window(grouping)
    if len(grouping.sets) > 1:
        grouping.copies = expand_sets(grouping.node, grouping.other, grouping.sets)
        grouping.node = grouping.copies.node
    names = [part.qualifier for part in relation.parts if part.qualifier is not None]
    node, replaced = _build_aggregate(grouping, state_ttl_ms(context, names) if len(relation.parts) == 1 else None)
    check_users_aggregates(called, node, context.script)
    window = None
    if grouping.group_window is not None:
        suffixes = {"START": "window_start", "END": "window_end"}
        time = node.schema.find("window_time")
        assert time is not None
        suffixes["PROCTIME" if time.proctime else "ROWTIME"] = "window_time"
        window = GroupWindow(grouping.group_window, {key: _column(node, name) for key, name in suffixes.items()})
    above = Scope(
        context.script,
        relation.node.schema,
        replaced=replaced,
        in_group=True,
        place="HAVING",
        parts=relation.parts,
        keys=grouping.above,
        window=window,
        grouping=None if grouping.copies is None else _grouping_of(grouping, grouping.copies),
    )
    return node, above


def _grouping_of(grouping: _Grouping, copies: ExpandedKeys) -> Callable[[Sequence[Expression]], Expression | None]:
    """GROUPING(...) above the node, where the number of the set is a key."""
    above = grouping.above[copies.number]
    assert isinstance(above, Column)
    return lambda asked: copies.grouping(asked, above)


def _column(node: Node, name: str) -> Column:
    found = node.schema.find(name)
    assert found is not None
    return Column(name, found.type)


def _bind_keys(grouping: _Grouping, select: Select, scope: Scope) -> None:
    bound: list[list[Expression]] = []
    for terms in sets_of(select, scope.script):
        keys: list[Expression] = []
        for term in terms:
            if isinstance(term, CallTerm) and term.name in WINDOW_CALLS:
                _take_window(grouping, term, select, scope)
            elif (key := _key(term, select, scope)) not in keys:
                keys.append(key)
        bound.append(keys)
    everywhere = [key for key in bound[0] if all(key in keys for keys in bound)]
    grouping.common = everywhere
    grouping.sets = [frozenset(keys) for keys in bound]
    grouping.other = [key for key in dict.fromkeys(key for keys in bound for key in keys) if key not in everywhere]


def _take_window(grouping: _Grouping, term: CallTerm, select: Select, scope: Scope) -> None:
    grouping.node, window, key = group_window(term, grouping.node, scope)
    if grouping.group_window not in (None, key):
        raise scope.script.error("SQL_UNSUPPORTED", "One window can be grouped by.", term.span)
    if isinstance(window, Session) and any(isinstance(group, GroupingSets) for group in select.groups):
        message = "SESSION with grouping sets is not supported: sessions depend on the keys."
        raise scope.script.error("SQL_UNSUPPORTED", message, term.span, remedy="Unite a query for each set.")
    grouping.window, grouping.group_window = window, key


def _key(term: Term, select: Select, scope: Scope) -> Expression:
    """One key; positions and aliases, which Flink does not take either, are refused with what to write."""
    if isinstance(term, LiteralTerm) and isinstance(term.value, int) and not isinstance(term.value, bool):
        message = "GROUP BY takes no positions: each row would be of the one group of this number."
        raise scope.script.error("SQL_UNSUPPORTED", message, term.span, remedy="Repeat the expression of SELECT.")
    if isinstance(term, NameTerm) and len(term.parts) == 1:
        visible = any(part.find(term.parts[0]) is not None for part in scope.sources)
        item = next((item for item in select.items if item.alias == term.parts[0]), None)
        if not visible and item is not None:
            text = scope.script.text[item.value.span.start : item.value.span.end]
            message = f'"{term.parts[0]}" is an alias of SELECT, which GROUP BY does not see.'
            remedy = f"Write GROUP BY {text}." if len(text) < 80 else "Repeat the expression of SELECT."
            raise scope.script.error("SQL_UNKNOWN_COLUMN", message, term.span, remedy=remedy)
    return bind_term(term, scope)


def _choose_window(grouping: _Grouping) -> None:
    """The window that the keys name, and the rows that it stands on."""
    if grouping.window is not None:
        if isinstance(grouping.window, Session):
            grouping.node, names = as_columns(grouping.node, [*grouping.common, *grouping.other], "key")
            grouping.window = replace(grouping.window, keys=names)
        return
    columns = window_columns(grouping.node)
    keyed = {key.name for key in grouping.common if isinstance(key, Column)}
    starts, ends = sorted(keyed & columns.starts), sorted(keyed & columns.ends)
    if not starts or not ends:
        return
    rows = grouping.node
    direct = _direct(grouping, columns)
    if direct is not None:
        grouping.window, grouping.node = direct
    else:
        grouping.node, time = with_window_time(grouping.node)
        grouping.window = Attached(starts[0], ends[0], time)
    _replace_bounds(grouping, columns, rows)


def _replace_bounds(grouping: _Grouping, columns: WindowColumns, rows: Node) -> None:
    """The bounds of the window are no keys: the node gives them by itself."""
    by_name = {of.name: Column(of.name, of.type) for of in rows.schema.fields}
    bounds = dict.fromkeys(columns.starts, "window_start") | dict.fromkeys(columns.ends, "window_end")
    bounds |= dict.fromkeys(columns.times, "window_time")
    for name, bound in bounds.items():
        if name in by_name:
            grouping.above[by_name[name]] = Column(bound, by_name[name].type)
    grouping.common = [key for key in grouping.common if key not in grouping.above]


def _direct(grouping: _Grouping, columns: WindowColumns) -> tuple[Window, Node] | None:
    """The window function right below and its input, if nothing but the keys reads the bounds."""
    node = grouping.node
    rows = node.input if isinstance(node, Filter) else node
    if not isinstance(rows, WindowRows):
        return None
    bounds = columns.starts | columns.ends | columns.times
    parts = [part for call in grouping.calls.values() for part in call.parts]
    parts += [key for key in (*grouping.common, *grouping.other) if not _is_bound(key, bounds)]
    parts += [node.predicate] if isinstance(node, Filter) else []
    reads = any(name in bounds for part in parts for name in columns_of(part))
    window = rows.window
    if isinstance(window, Session):
        keys = {key.name if isinstance(key, Column) else "" for key in grouping.common if not _is_bound(key, bounds)}
        reads = reads or bool(grouping.other) or keys != set(window.keys)
    if reads:
        return (window, node) if isinstance(window, Tumble) else None
    return window, replace(node, input=rows.input) if isinstance(node, Filter) else rows.input


def _is_bound(key: Expression, bounds: frozenset[str]) -> bool:
    return isinstance(key, Column) and key.name in bounds


def _build_aggregate(
    grouping: _Grouping, ttl_ms: int | None
) -> tuple[Aggregate | WindowAggregate, dict[object, Expression]]:
    """The node, and what stands for each aggregate above it; the keys are added to `above`."""
    used_names = set() if grouping.window is None else set(BOUNDS)
    keys: list[tuple[str, Expression]] = []
    copied = {} if grouping.copies is None else grouping.copies.columns
    sources: list[Expression] = [*grouping.common, *grouping.other]
    for number, key in enumerate(sources):
        below = copied.get(key, key)
        name = fresh_name(key.name if isinstance(key, Column) else f"key_{number}", used_names)
        keys.append((name, below))
        grouping.above[key] = Column(name, below.type)
    if grouping.copies is not None:
        of_set = grouping.copies.number
        name = fresh_name(of_set.name, used_names)
        keys.append((name, of_set))
        grouping.above[of_set] = Column(name, of_set.type)
    calls: list[tuple[str, AggregateCall]] = []
    replaced: dict[object, Expression] = {}
    for term, call in grouping.calls.items():
        name = fresh_name(f"aggregate_{len(calls)}", used_names)
        calls.append((name, call))
        replaced[term] = Column(name, call.type)
    if grouping.window is None:
        return Aggregate(grouping.node, tuple(keys), tuple(calls), ttl_ms), replaced
    return WindowAggregate(grouping.node, grouping.window, tuple(keys), tuple(calls)), replaced
