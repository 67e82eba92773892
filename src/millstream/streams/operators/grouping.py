"""GROUP BY without a window: one updating row per key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.aggregates.group import Counts, Group, GroupMachine, Seen
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER, BatchTimes, Changes, OperatorOutput, Row
from millstream.streams.operators.state import GroupedTable, KeyedTable, OperatorState, SetTable

__all__ = ["Grouper", "by_key", "row_of_nothing"]

Runs = dict[Row, tuple[list[Row], list[Row]]]
"""By key: the rows that come and those that are taken back, each in order."""


class Grouper:
    """Keys and aggregates of each group. The first `keys` columns of a row are the key.

    A turn tells each group's change once, however many rows have changed it.
    """

    def __init__(self, keys: int, specs: Sequence[AggregateSpec], *, changing: bool) -> None:
        self._keys = keys
        self._machine = GroupMachine(specs, changing=changing)
        self._groups: KeyedTable[Row, tuple[Row, Group]] = KeyedTable()
        self._changing = changing
        self._values: GroupedTable[Any, list[Any]] = GroupedTable()
        self._seen: SetTable[Any, Any] = SetTable()

    def open(self, state: OperatorState) -> None:
        """One group per key: the key's values, and the states. Different values are kept each by itself.

        Where none of them goes again, no number is kept with them.
        """
        self._groups = state.table("groups", lives=True)
        if self._changing:
            self._values = state.grouped_table("values")
        else:
            self._seen = state.sets("seen")

    def process(self, number: int, changes: Changes, turn: BatchTimes, out: OperatorOutput) -> None:
        """Take rows."""
        for key, (come, gone) in by_key(changes, self._keys).items():
            known = self._groups.get(key)
            values, group = known or ((come or gone)[0][: self._keys], self._machine.new())
            for place in self._machine.distinct:
                group[place] = (self._different((key, place)), group[place][1])
            before = self._row(values, group) if group[0] else None
            # In this order a row that is updated in one turn never leaves its group for a moment.
            self._machine.add(group, come)
            if gone:
                self._machine.retract(group, gone)
            after = self._row(values, group) if group[0] > 0 else None
            if after is not None:
                for place in self._machine.distinct:
                    group[place] = (None, group[place][1])
                self._groups.put(key, (values, group))
            else:
                self._forget(key)
            out.update(before, after)

    def advance(self, turn: BatchTimes, out: OperatorOutput) -> None:
        """Groups whose time to live is over are forgotten, not taken back."""
        for key, _ in self._groups.expire():
            self._forget(key)

    def _forget(self, key: Row) -> None:
        self._groups.delete(key)
        for place in self._machine.distinct:
            if self._changing:
                self._values.drop((key, place))
            else:
                self._seen.drop((key, place))

    def _different(self, group: tuple[Row, int]) -> Counts | Seen:
        return _DistinctValues(self._values, group) if self._changing else partial(self._seen.add, group)

    def _row(self, values: Row, group: Group) -> Row:
        return (*values, *self._machine.results(group))


def row_of_nothing(specs: Sequence[AggregateSpec]) -> Row:
    """The aggregates of no rows, as SQL has them where there is no GROUP BY: a COUNT is 0, a SUM is NULL."""
    machine = GroupMachine(specs, changing=False)
    return machine.results(machine.new())


class _DistinctValues:
    """The different values of one call in one group, in a table of which each is a value of its own."""

    __slots__ = ("_group", "_table")

    def __init__(self, table: GroupedTable[Any, list[Any]], group: tuple[Row, int]) -> None:
        self._table = table
        self._group = group

    def get(self, key: Any) -> list[Any] | None:
        return self._table.group(self._group).get(key)

    def __setitem__(self, key: Any, entry: list[Any]) -> None:
        self._table.put(self._group, key, entry)

    def __delitem__(self, key: Any) -> None:
        self._table.delete(self._group, key)


def by_key(changes: Changes, keys: int) -> Runs:
    """The rows of each key, the first `keys` columns."""
    runs: Runs = {}
    for kind, row in changes:
        key = row[:keys]
        try:
            run = runs.get(key)
        except TypeError:
            key = tuple(map(hashable, key))
            run = runs.get(key)
        if run is None:
            run = runs[key] = ([], [])
        run[0 if kind in (INSERT, UPDATE_AFTER) else 1].append(row)
    return runs
