"""A plan run in this process, without Spark: our parser, binder and operators, with rows as plain tuples between them.

What it leaves out is what Spark does: expressions outside of operators as Spark's columns, packing, files of state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from millstream.streams.errors import JobError
from millstream.streams.operators.evaluate import Evaluator, evaluator
from millstream.streams.operators.operator import (
    END_OF_TIME_US,
    INSERT,
    BatchTimes,
    Changes,
    Operator,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import OperatorState
from millstream.streams.plan.aggregates import Expand
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import Filter, Node, Project, Scan, Union, WindowRows, inputs_of
from millstream.streams.plan.windows import Cumulate, Hop, Tumble, Window
from millstream.streams.spark.operators.clocks import Clocks, Seen
from millstream.streams.spark.operators.wiring import Wiring
from millstream.streams.spark.operators.wirings import wiring_of

__all__ = ["Given", "OperatorRun", "PlanRows", "Stateful", "Told", "share_of"]

BUCKETS = 4
"""Buckets of keys of each operator: rows that have to meet and are in two of them do not, as on Spark."""

END_TICK_US = END_OF_TIME_US

Told = list[tuple[int, Row]]
"""Kinds and rows, in order."""


@dataclass(slots=True)
class Given:
    """What a micro-batch has for one table: changes in order, and its newest event time less the delay."""

    changes: Told = field(default_factory=list)
    time_us: int | None = None


@dataclass(slots=True)
class _Rows:
    """Rows of a node in one micro-batch, and what moves the event time of those above."""

    changes: Told
    seen: dict[int, Seen]


class PlanRows:
    """Runs `node` micro-batch by micro-batch; `stateful` makes what runs each operator.

    Raises JobError for a node or an expression that needs Spark.
    """

    def __init__(self, node: Node, stateful: Stateful | None = None) -> None:
        self._root = _part(node, {}, count(1000), stateful or _InProcess)
        self.appends = changelog_of(node) is ChangelogMode.APPEND

    def run(self, tables: Mapping[str, Given], *, ends: bool = False) -> Told:
        """What the node says in a micro-batch of these rows; `ends`: event time is over behind them."""
        return self._root.run(tables, ends).changes


class OperatorRun(Protocol):
    """An operator that runs micro-batch by micro-batch over all of its keys."""

    def run(self, inputs: Sequence[Told], seen: Mapping[int, Seen]) -> tuple[Told, int]:
        """What it says of the rows of its inputs, and where event time stands then."""
        ...


Stateful = Callable[[Wiring, Node, frozenset[int]], OperatorRun]
"""Makes what runs an operator: its wiring, its node, the numbers of the clocks below it."""


class _Part:
    """A node with those below it."""

    clocks: frozenset[int]

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        raise NotImplementedError


def _part(node: Node, numbers: dict[str, int], names: count[int], stateful: Stateful) -> _Part:
    if isinstance(node, Scan):
        return _Source(node, numbers.setdefault(node.table.name, len(numbers)))
    if isinstance(node, Union):
        return _United([_part(below, numbers, names, stateful) for below in node.inputs])
    wiring = wiring_of(node)
    if wiring is not None:
        inputs = [_part(wire.node, numbers, names, stateful) for wire in wiring.inputs]
        return _Stateful(wiring, node, inputs, next(names), stateful)
    (below,) = inputs_of(node)
    part = _part(below, numbers, names, stateful)
    places = {name: place for place, name in enumerate(below.schema.names)}
    match node:
        case Filter(predicate=predicate):
            return _Filtered(part, evaluator(predicate, places))
        case Project(columns=columns):
            return _Projected(part, [[evaluator(value, places) for _, value in columns]])
        case Expand(projections=projections):
            return _Projected(part, [[evaluator(value, places) for value in one] for one in projections])
        case WindowRows(window=window):
            return _InWindows(part, window, places[window.time_column])
    raise JobError("JOB_FAILED", f"{type(node).__name__} needs Spark.")


class _Source(_Part):
    def __init__(self, node: Scan, number: int) -> None:
        self._name, self._number = node.table.name, number
        names = [column.name for column in node.table.columns]
        self._places = [names.index(name) for name in node.schema.names]
        self.clocks = frozenset({number})

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        given = tables.get(self._name, Given())
        rows = [(kind, tuple(row[place] for place in self._places)) for kind, row in given.changes]
        seen = Seen(END_TICK_US if ends else None, {} if given.time_us is None else {"0": given.time_us})
        return _Rows(rows, {self._number: seen})


class _United(_Part):
    def __init__(self, below: Sequence[_Part]) -> None:
        self._below = below
        self.clocks = frozenset().union(*(one.clocks for one in below))

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        found = [one.run(tables, ends) for one in self._below]
        seen = {number: one for rows in found for number, one in rows.seen.items()}
        return _Rows([told for rows in found for told in rows.changes], seen)


class _Filtered(_Part):
    def __init__(self, below: _Part, fits: Evaluator) -> None:
        self._below, self._fits = below, fits
        self.clocks = below.clocks

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        rows = self._below.run(tables, ends)
        return _Rows([told for told in rows.changes if self._fits(told[1])], rows.seen)


class _Projected(_Part):
    def __init__(self, below: _Part, projections: Sequence[Sequence[Evaluator]]) -> None:
        self._below, self._projections = below, projections
        self.clocks = below.clocks

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        rows = self._below.run(tables, ends)
        made = [
            (kind, tuple(value(row) for value in values)) for kind, row in rows.changes for values in self._projections
        ]
        return _Rows(made, rows.seen)


class _InWindows(_Part):
    def __init__(self, below: _Part, window: Window, time: int) -> None:
        self._below, self._window, self._time = below, window, time
        self.clocks = below.clocks

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        rows = self._below.run(tables, ends)
        made = [
            (kind, (*row, start_ms * 1000, end_ms * 1000, end_ms * 1000 - 1000))
            for kind, row in rows.changes
            if row[self._time] is not None
            for start_ms, end_ms in _windows_of(self._window, row[self._time] // 1000)
        ]
        return _Rows(made, rows.seen)


class _Stateful(_Part):
    def __init__(self, wiring: Wiring, node: Node, below: Sequence[_Part], number: int, stateful: Stateful) -> None:
        self._below, self._number = below, number
        self._columns = [
            [evaluator(column, {name: at for at, name in enumerate(wire.node.schema.names)}) for column in wire.columns]
            for wire in wiring.inputs
        ]
        places = {name: place for place, name in enumerate(node.schema.names)}
        self._fits = None if wiring.condition is None else evaluator(wiring.condition, places)
        self._running = stateful(wiring, node, frozenset().union(*(one.clocks for one in below)))
        self.clocks = frozenset({number})

    def run(self, tables: Mapping[str, Given], ends: bool) -> _Rows:
        found = [one.run(tables, ends) for one in self._below]
        inputs = [
            [(kind, tuple(value(row) for value in columns)) for kind, row in rows.changes]
            for columns, rows in zip(self._columns, found, strict=True)
        ]
        made, after_us = self._running.run(inputs, {number: one for rows in found for number, one in rows.seen.items()})
        if self._fits is not None:
            made = [told for told in made if self._fits(told[1])]
        return _Rows(made, {self._number: Seen(after_us, {})})


class _InProcess:
    """An operator whose buckets are objects of this process."""

    def __init__(self, wiring: Wiring, node: Node, clocks: frozenset[int]) -> None:
        self._keys = [wire.keys for wire in wiring.inputs]
        self._buckets: list[tuple[Operator, OperatorState]] = []
        for _ in range(BUCKETS):
            state, operator = OperatorState(0, dict(wiring.lives_ms)), wiring.make()
            operator.open(state)
            self._buckets.append((operator, state))
        self._clocks = Clocks(sorted(clocks), {}, OperatorState(0, {}))

    def run(self, inputs: Sequence[Told], seen: Mapping[int, Seen]) -> tuple[Told, int]:
        before_us = self._clocks.watermark_us
        after_us = self._clocks.advance(seen, 0)
        turn = BatchTimes(before_us, after_us, 0)
        made: Told = []
        for bucket, (operator, _) in enumerate(self._buckets):
            out = OperatorOutput()
            for place, told in enumerate(inputs):
                changes = self._changes(place, told, bucket)
                if changes is not None:
                    operator.process(place, changes, turn, out)
            operator.advance(turn, out)
            made += list(out.changes())
        return made, after_us

    def _changes(self, place: int, told: Told, bucket: int) -> Changes | None:
        rows, kinds = [], []
        for kind, row in told:
            if share_of([row[key] for key in self._keys[place]], BUCKETS) == bucket:
                rows.append(row)
                kinds.append(kind)
        if not rows:
            return None
        return Changes(rows, None if all(kind == INSERT for kind in kinds) else kinds)


def share_of(keys: Sequence[object], count: int) -> int:
    """Which of `count` shares equal keys have, the same in every process."""
    return sum(map(ord, repr(keys))) % count if keys else 0


def _windows_of(window: Window, at_ms: int) -> list[tuple[int, int]]:
    """The windows that a time is in."""
    match window:
        case Tumble(size_ms=size_ms, offset_ms=offset_ms):
            start_ms = at_ms - (at_ms - offset_ms) % size_ms
            return [(start_ms, start_ms + size_ms)]
        case Hop(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms):
            last_ms = at_ms - (at_ms - offset_ms) % slide_ms
            return [(start_ms, start_ms + size_ms) for start_ms in range(last_ms, at_ms - size_ms, -slide_ms)][::-1]
        case Cumulate(size_ms=size_ms, step_ms=step_ms, offset_ms=offset_ms):
            start_ms = at_ms - (at_ms - offset_ms) % size_ms
            first_ms = start_ms + ((at_ms - start_ms) // step_ms + 1) * step_ms
            return [(start_ms, end_ms) for end_ms in range(first_ms, start_ms + size_ms + 1, step_ms)]
    raise JobError("JOB_FAILED", f"A window TVF of {window} has no rows of its own.")
