"""The last row of each key among changes that come one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from millstream.streams.operators.changes import Row
from millstream.streams.plan.changelog import RowKind
from millstream.streams.spark.operators.values import rows_of

__all__ = ["LatestRows"]

_GONE = (RowKind.DELETE.value, RowKind.UPDATE_BEFORE.value)

_Place = tuple[int, int]


class LatestRows:
    """The last row of each key among batches whose first `keys` columns are the key; what is outdated is let go.

    A key of which a part is NULL is none. `keeps_gone` keeps the keys that were deleted as well. `slack` is how many
    outdated rows are kept beside as many as count.
    """

    def __init__(self, keys: int, *, keeps_gone: bool = False, slack: int = 100_000) -> None:
        self._keys = keys
        self._keeps_gone = keeps_gone
        self._slack = slack
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._places: dict[Row, _Place] = {}
        self._gone: dict[Row, _Place] = {}

    def __len__(self) -> int:
        """The keys that are kept."""
        return len(self._places) + len(self._gone)

    def add(self, batch: pa.RecordBatch, kinds: pa.Array) -> None:
        """Rows that come later than all before."""
        number = len(self._batches)
        for place, (key, kind) in enumerate(zip(rows_of(batch, self._keys), kinds.to_pylist(), strict=True)):
            if None in key:
                continue
            if kind in _GONE:
                self._places.pop(key, None)
                if self._keeps_gone:
                    self._gone[key] = (number, place)
            else:
                self._gone.pop(key, None)
                self._places[key] = (number, place)
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows > 2 * len(self) + self._slack:
            self._tidy()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        yield from self._taken(self._places.values())

    def changed_keys(self) -> Iterator[pa.RecordBatch]:
        """All keys that are kept, in the columns of the key."""
        for batch in self._taken([*self._places.values(), *self._gone.values()]):
            yield batch.select(range(self._keys))

    def _taken(self, places: Iterable[_Place]) -> Iterator[pa.RecordBatch]:
        chosen: list[list[int]] = [[] for _ in self._batches]
        for number, place in places:
            chosen[number].append(place)
        for batch, some in zip(self._batches, chosen, strict=True):
            if some:
                yield batch.take(pa.array(sorted(some)))

    def _tidy(self) -> None:
        kept, gone = (list(self._taken(places.values())) for places in (self._places, self._gone))
        self._batches, self._rows = [], 0
        for places, batches in ((self._places, kept), (self._gone, gone)):
            places.clear()
            for batch in pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else ():
                number = len(self._batches)
                places.update((key, (number, place)) for place, key in enumerate(rows_of(batch, self._keys)))
                self._batches.append(batch)
                self._rows += batch.num_rows
