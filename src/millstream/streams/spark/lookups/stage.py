"""The stage in which rows are looked up: each batch of rows asks the worker's table for its keys once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.streams.operators.evaluate import evaluator
from millstream.streams.operators.operator import Row
from millstream.streams.plan.expressions import Expression
from millstream.streams.spark.lookups.lookup_table import LookupSpec, LookupTable
from millstream.streams.spark.lookups.opening import open_table
from millstream.streams.spark.operators.arrow_rows import batch_of, rows_of
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["LookupStage", "LookupStep"]

MAX_TABLES: Final = 16
"""Tables that a worker holds; the one that was used longest ago goes first."""

_tables: Final = WorkerCache[tuple[str, LookupSpec], LookupTable](MAX_TABLES)


@dataclass(frozen=True, slots=True)
class LookupStep:
    """One lookup join of a job, as it travels to the workers.

    `keys` are the places of the keys among a row's columns, `asks` that of a flag that says whether a row looks up at
    all. `condition` reads the row's columns `names` (at `places`) and those that were found under `found`. `output` is
    the Arrow schema: the row's columns, a flag that says whether anything was found, what was found.
    """

    job_id: str
    spec: LookupSpec
    keys: tuple[int, ...]
    asks: int
    names: tuple[str, ...]
    places: tuple[int, ...]
    found: tuple[str, ...]
    condition: Expression | None
    output: pa.Schema


class LookupStage:
    """The function of a lookup's stage: each row once for each row that is found, or once without any."""

    def __init__(self, step: LookupStep) -> None:
        self._step = step

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = self._step
        table = _table(step)
        names = {name: place for place, name in enumerate((*step.names, *step.found))}
        fits = None if step.condition is None else evaluator(step.condition, names)
        for batch in batches:
            keys = _keys(batch, step)
            rows = table.find(list(dict.fromkeys(key for key in keys if key is not None)))
            chosen: list[Sequence[Row]]
            if fits is None:
                chosen = [rows.get(key, ()) if key is not None else () for key in keys]
            else:
                mine = _columns(batch, step.places)
                chosen = [
                    [one for one in rows.get(key, ()) if fits((*row, *one)) is True] if key is not None else []
                    for row, key in zip(mine, keys, strict=True)
                ]
            yield _join_chosen(batch, chosen, step.output)


def _table(step: LookupStep) -> LookupTable:
    """The worker's table, kept from one batch of the job to the next."""
    return _tables.get_or_make((step.job_id, step.spec), lambda: open_table(step.spec))


def _keys(batch: pa.RecordBatch, step: LookupStep) -> list[Row | None]:
    """The key of each row; None where a part of it is NULL, or the row does not ask."""
    asks = batch.column(step.asks).to_pylist()
    keys = _columns(batch, step.keys)
    return [key if ask and None not in key else None for ask, key in zip(asks, keys, strict=True)]


def _columns(batch: pa.RecordBatch, places: tuple[int, ...]) -> list[Row]:
    chosen = pa.RecordBatch.from_arrays([batch.column(place) for place in places], [f"c{one}" for one in places])
    return rows_of(chosen, len(places)) if places else [()] * batch.num_rows


def _join_chosen(batch: pa.RecordBatch, chosen: Sequence[Sequence[Row]], output: pa.Schema) -> pa.RecordBatch:
    """The rows with what was chosen for each; NULLs behind a row for which nothing was."""
    fields = list(output)[batch.num_columns + 1 :]
    nothing: Row = (None,) * len(fields)
    places = [place for place, rows in enumerate(chosen) for _ in range(max(len(rows), 1))]
    found = [row for rows in chosen for row in (rows or (nothing,))]
    flags = pa.array([bool(rows) for rows in chosen for _ in range(max(len(rows), 1))], pa.bool_())
    mine = batch.columns if len(places) == batch.num_rows else batch.take(pa.array(places, pa.int32())).columns
    return pa.RecordBatch.from_arrays([*mine, flags, *batch_of(found, fields)], schema=output)
