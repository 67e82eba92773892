"""The lookup stage over a dimension table: whole Arrow batches, Python rows only for conditions.

A batch's rows against a dimension table: distinct keys ask once, and the pairs come back in the rows' order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.dimension.index_key import IndexKey, Matches, Numbers
from millstream.streams.dimension.overlay import SearchableTable
from millstream.streams.plan.expressions import Expression
from millstream.streams.spark.lookups.open_tables import TableUse, hit_counts, open_tables
from millstream.streams.spark.lookups.row_conditions import PairCondition, pair_condition

__all__ = ["PAIRS_AT_ONCE", "ROWS_PER_BATCH", "DimensionStage", "DimensionStep", "every_pair", "found_pairs"]

PAIRS_AT_ONCE: Final = 1_000_000
"""Pairs of a row and a row of the table that are compared at once without an index."""

_DENSE: Final = 1 << 31


def found_pairs(table: SearchableTable, key: IndexKey, probes: Sequence[pa.Array]) -> Matches:
    """Each probe with each row of the table that it finds, ordered by probe, then row; NULL finds nothing."""
    asking, codes = _code_probes(probes)
    if not len(asking):
        return Matches(np.empty(0, np.int64), np.empty(0, np.int64))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    distinct = [probe.take(pa.array(asking[first])) for probe in probes]
    found = table.find(key, distinct)
    counts = np.bincount(found.probe, minlength=len(first))
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    mine = counts[inverse]
    ends = np.cumsum(mine)
    total = int(ends[-1])
    within = np.arange(total, dtype=np.int64) - np.repeat(ends - mine, mine)
    return Matches(np.repeat(asking, mine), found.row[np.repeat(starts[inverse], mine) + within])


def every_pair(probes: Numbers, rows: Numbers) -> Matches:
    """Each probe with each row."""
    return Matches(np.repeat(probes, len(rows)), np.tile(rows, len(probes)))


def _code_probes(probes: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
    """The places of the rows without NULL, and a number for each, equal for equal keys."""
    valid = np.ones(len(probes[0]), np.bool_)
    for probe in probes:
        if probe.null_count:
            valid &= pc.is_valid(probe).to_numpy(zero_copy_only=False)
    asking = np.flatnonzero(valid).astype(np.int64)
    codes: Numbers = np.zeros(len(asking), np.int64)
    size = 1
    for probe in probes:
        chosen = probe if len(asking) == len(probe) else probe.take(pa.array(asking))
        encoded = chosen.dictionary_encode()
        if size > _DENSE:
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
        width = max(len(encoded.dictionary), 1)
        codes = codes * width + encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        size *= width
    return asking, codes


ROWS_PER_BATCH: Final = 50_000
"""Rows of an output batch at most: a row may find very many."""


@dataclass(frozen=True, slots=True)
class DimensionStep:
    """One join with a dimension table, as it travels to the workers.

    `probes` are the places of the values that ask, in the order of the key's columns; `asks` that of a flag that says
    whether a row looks up at all. `taken` are the table's columns behind the flag that says whether anything was found,
    in the Arrow schema `output`. `condition` reads the row's columns `names` (at `places`) and the table's columns
    `read` under the names `found`.
    """

    use: TableUse
    probes: tuple[int, ...]
    asks: int
    taken: tuple[str, ...]
    output: pa.Schema
    condition: Expression | None = None
    names: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    read: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


class DimensionStage:
    """The function of a join's stage: each row once for each row that is found, or once without any."""

    def __init__(self, step: DimensionStep, table: Callable[[TableUse], SearchableTable] | None = None) -> None:
        self._step = step
        self._table = table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = self._step
        table = (self._table or open_tables().table)(step.use)
        counts = hit_counts(step.use.store) if self._table is None else None
        fits = None
        if step.condition is not None:
            fits = pair_condition(step.condition, (*step.names, *step.found))
        for batch in batches:
            asking = np.flatnonzero(batch.column(step.asks).to_numpy(zero_copy_only=False)).astype(np.int64)
            pairs = _pairs(batch, asking, table, step, fits)
            if counts is not None:
                counts.add(len(asking), len(np.unique(pairs.probe)))
            yield from _join_found(batch, pairs, table, step)
        if counts is not None:
            counts.write()


def _pairs(
    batch: pa.RecordBatch, asking: Numbers, table: SearchableTable, step: DimensionStep, fits: PairCondition | None
) -> Matches:
    """The rows that ask with those that they find, ordered by both."""
    if step.use.key is not None:
        chosen = pa.array(asking)
        probes = [batch.column(place) for place in step.probes]
        if len(asking) < batch.num_rows:
            probes = [probe.take(chosen) for probe in probes]
        found = found_pairs(table, step.use.key, probes)
        return _fitting(batch, Matches(asking[found.probe], found.row), table, step, fits)
    rows = table.row_numbers()
    if not len(rows) or not len(asking):
        return every_pair(asking[:0], rows[:0])
    at_once = max(1, PAIRS_AT_ONCE // len(rows))
    parts = [
        _fitting(batch, every_pair(asking[start : start + at_once], rows), table, step, fits)
        for start in range(0, len(asking), at_once)
    ]
    return Matches(np.concatenate([one.probe for one in parts]), np.concatenate([one.row for one in parts]))


def _fitting(
    batch: pa.RecordBatch, pairs: Matches, table: SearchableTable, step: DimensionStep, fits: PairCondition | None
) -> Matches:
    """The pairs for which the condition holds."""
    if fits is None or not len(pairs.probe):
        return pairs
    keeps: list[npt.NDArray[np.bool_]] = []
    for start in range(0, len(pairs.probe), ROWS_PER_BATCH):
        probe, row = (side[start : start + ROWS_PER_BATCH] for side in pairs)
        mine = [batch.column(place).take(pa.array(probe)) for place in step.places]
        theirs = _take_rows(table, row, step.read).columns if step.read else []
        names = [f"c{place}" for place in range(len(mine) + len(theirs))]
        # A condition may read no column at all.
        both = pa.RecordBatch.from_arrays([*mine, *theirs], names) if names else _rows_without_columns(len(probe))
        keeps.append(fits(both))
    kept = np.concatenate(keeps)
    return Matches(pairs.probe[kept], pairs.row[kept])


def _rows_without_columns(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))


def _join_found(
    batch: pa.RecordBatch, pairs: Matches, table: SearchableTable, step: DimensionStep
) -> Iterator[pa.RecordBatch]:
    """The rows with what was found for each; NULLs behind a row for which nothing was."""
    counts = np.bincount(pairs.probe, minlength=batch.num_rows)
    times = np.maximum(counts, 1)
    places = np.repeat(np.arange(batch.num_rows, dtype=np.int64), times)
    flags = np.repeat(counts > 0, times)
    ends = np.cumsum(flags)
    for start in range(0, len(places), ROWS_PER_BATCH):
        part = slice(start, start + ROWS_PER_BATCH)
        begin = 0 if start == 0 else int(ends[start - 1])
        rows = pairs.row[begin : begin + int(np.count_nonzero(flags[part]))]
        found = _take_rows(table, rows, step.taken)
        behind = pa.array(ends[part] - begin - 1, mask=~flags[part])
        theirs = found.columns if flags[part].all() else [column.take(behind) for column in found.columns]
        whole = len(places) == batch.num_rows and part.stop >= len(places)
        mine = batch.columns if whole and not start else batch.take(pa.array(places[part])).columns
        arrays = [*mine, pa.array(flags[part]), *theirs]
        typed = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(arrays, step.output, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(typed, schema=step.output)


def _take_rows(table: SearchableTable, rows: Numbers, columns: tuple[str, ...]) -> pa.RecordBatch:
    """These rows of the table; one that is there often is read once."""
    if not columns:
        return pa.RecordBatch.from_arrays([], names=[])
    distinct, inverse = np.unique(rows, return_inverse=True)
    if len(distinct) == len(rows):
        return table.take(rows, columns)
    return table.take(distinct, columns).take(pa.array(inverse))
