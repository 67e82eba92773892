"""The stage in which users' functions run: all calls of a node over an Arrow batch, in one pass of a Python worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from millstream.streams.functions.user_functions.failed_calls import FailedCall, UserFunctionFailed
from millstream.streams.plan.types import Schema
from millstream.streams.spark.functions.user_batch import BatchCall
from millstream.streams.spark.functions.user_spool import SpooledCall
from millstream.streams.spark.runtime.micro_batch import micro_batch
from millstream.streams.spark.sinks.json_rows import encode_rows
from millstream.streams.state.spool import Spool
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["FAILED", "PlacedCall", "UserStage"]

FAILED = "failed"
"""The field that says whether a call of the row has failed."""

MAX_STAGES: Final = 4096
"""Stages whose batches a worker counts: far more than one task has, which must find its own again."""

_Task = tuple[int, int]

_batches: Final = WorkerCache[str, tuple[_Task, int]](MAX_STAGES)
"""How many batches the task under way has brought to each stage."""


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call over places of the stage's arrays. `asked` is the place of what says whether a row asks; None: all do."""

    call: BatchCall
    places: tuple[int, ...]
    asked: int | None


@dataclass(frozen=True, slots=True)
class UserStage:
    """The function of a stage: a struct of the value of each call, `c0`, `c1` and so on, and `FAILED`.

    `on_error` is null, fail or dead-letter. `letter` is the row behind the calls' arrays that goes to the dead letters;
    it starts at the place `letter_place`.
    """

    name: str
    calls: tuple[PlacedCall, ...]
    spool: Spool[SpooledCall]
    on_error: str
    timeout_ms: int | None = None
    letter: Schema | None = None
    letter_place: int = 0

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        count = len(arrays[0])
        columns: list[pa.Array] = []
        failed: dict[int, FailedCall] = {}
        for placed in self.calls:
            column, failures = self._call(placed, arrays, count)
            columns.append(column)
            for place, call in failures:
                failed.setdefault(place, call)
        if failed:
            self._tell(failed, arrays)
        said = [place in failed for place in range(count)] if failed else [False] * count
        names = [*(f"c{number}" for number in range(len(columns))), FAILED]
        return pa.StructArray.from_arrays([*columns, pa.array(said, pa.bool_())], names)

    def _call(
        self, placed: PlacedCall, arrays: Sequence[pa.Array], count: int
    ) -> tuple[pa.Array, Sequence[tuple[int, FailedCall]]]:
        """The values of one call, NULL where it is not asked, and what failed."""
        given = [arrays[place] for place in placed.places]
        if placed.asked is None:
            return placed.call.compute(given, count, self.timeout_ms)
        asked = pc.fill_null(arrays[placed.asked], False)
        rows = pc.indices_nonzero(asked)
        if len(rows) == count:
            return placed.call.compute(given, count, self.timeout_ms)
        column, failures = placed.call.compute([one.take(rows) for one in given], len(rows), self.timeout_ms)
        places = rows.to_pylist()
        number_of = dict(zip(places, range(len(places)), strict=True))
        whole = column.take(pa.array([number_of.get(place) for place in range(count)], pa.int64()))
        return whole, [(places[place], call) for place, call in failures]

    def _tell(self, failed: dict[int, FailedCall], arrays: Sequence[pa.Array]) -> None:
        """Leave the failures to the driver. Raises UserFunctionFailed where they end the job."""
        rows: list[bytes] = [b""] * len(failed)
        if self.letter is not None:
            behind = arrays[self.letter_place : self.letter_place + len(self.letter.fields)]
            batch = pa.RecordBatch.from_arrays(list(behind), names=list(self.letter.names))
            rows = encode_rows(batch.take(pa.array(list(failed))), self.letter)
        calls = [SpooledCall(self.name, call, row) for call, row in zip(failed.values(), rows, strict=True)]
        self.spool.put(self._piece(), calls)
        if self.on_error == "fail":
            raise UserFunctionFailed(calls[0].call)

    def _piece(self) -> str:
        """The piece of work: the same for the same rows of a micro-batch that is repeated."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        task = (micro_batch(), 0 if context is None else context.taskAttemptId())
        before = _batches.get(self.name)
        number = before[1] + 1 if before is not None and before[0] == task else 0
        _batches.put(self.name, (task, number))
        return f"{self.name}-{task[0]}-{partition}-{number}"
