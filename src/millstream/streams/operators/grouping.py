"""GROUP BY without a window: one row per key, which changes as rows come and go."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.aggregates.collected import hashable
from millstream.streams.operators.aggregates.group import Group, GroupMachine
from millstream.streams.operators.changes import INSERT, UPDATE_AFTER, Changes, Output, Row
from millstream.streams.operators.state import KeyedTable, State
from millstream.streams.operators.turn import Turn

__all__ = ["Grouper", "by_key"]

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

    def open(self, state: State) -> None:
        """One group per key: the key's values, and the states."""
        self._groups = state.table("groups", lives=True)

    def process(self, number: int, changes: Changes, turn: Turn, out: Output) -> None:
        """Take rows."""
        for key, (come, gone) in by_key(changes, self._keys).items():
            known = self._groups.get(key)
            values, group = known or ((come or gone)[0][: self._keys], self._machine.new())
            before = self._row(values, group) if group[0] else None
            # In this order a row that is updated in one turn never leaves its group for a moment.
            self._machine.add(group, come)
            if gone:
                self._machine.retract(group, gone)
            if group[0] > 0:
                self._groups.put(key, (values, group))
                out.update(before, self._row(values, group))
            else:
                self._groups.delete(key)
                out.update(before, None)

    def advance(self, turn: Turn, out: Output) -> None:
        """Groups whose time to live is over are forgotten, not taken back."""
        self._groups.expire()

    def _row(self, values: Row, group: Group) -> Row:
        return (*values, *self._machine.results(group))


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
