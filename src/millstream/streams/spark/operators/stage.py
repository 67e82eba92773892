"""The stage in which operators run: takes the packed rows of its key groups, keeps their state, yields changed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.streams.functions.user_functions.failed_calls import FailedCall, UserFunctionFailed, collecting
from millstream.streams.operators.columns import SelectedRows
from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.operators.operator import (
    END_OF_TIME_US,
    INSERT,
    START_OF_TIME_US,
    BatchTimes,
    Changes,
    Operator,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import OpenEnds, OperatorState
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.operators.arrow_rows import ArrowRows, batch_of, columns_of
from millstream.streams.spark.operators.bucket_files import BucketFiles
from millstream.streams.spark.operators.clocks import END_TICK_US, IDLE_TICK_US, Clocks, merge_seen
from millstream.streams.spark.operators.operator_reports import (
    LateRows,
    OperatorEnds,
    QueueTimes,
    late_spool,
    open_ends_spool,
    times_spool,
)
from millstream.streams.spark.operators.packing import GROUP_COLUMN
from millstream.streams.spark.runtime.micro_batch import collector_paused, micro_batch
from millstream.streams.state.group_log import SHARED, GroupLog, Sections
from millstream.streams.state.spool import Spool
from millstream.streams.state.state_files import StateFiles
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["CallsSpec", "OperatorSpec", "OperatorStage"]


MAX_KEPT_TASKS: Final = 64
"""Tasks of operators whose state a worker keeps in memory from one micro-batch to the next; others are read again."""

ROWS_PER_BATCH: Final = 20_000
"""Rows of an output batch at most."""


@dataclass(frozen=True, slots=True)
class CallsSpec:
    """How users' aggregates are called: where failed calls go, whether one ends the job, and how long one may take.

    With `keeps_rows` the rows for which they failed go there too.
    """

    spool: Spool[SpooledCall]
    fails: bool
    keeps_rows: bool
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator of a job, as it travels to the workers.

    `make` gives a fresh instance, of which each key group has one. `groups` says how these are dealt to tasks, `files`
    is where they keep their state, `buckets` where releases before key groups kept it. `inputs` are the numbers of
    columns of each input; `clocks` the numbers of all sources and operators that move its event time; `output` the
    Arrow schema of its rows with the kind and the tick behind them. `late` is the spool of rows that came too
    late, of what is known of event time and of what waits for it, `now_us` tells the processing time, `calls` says
    what becomes of failed calls of users' aggregates. `idle_ms` is after how long a silent queue of a source holds
    nothing up, by the source's number. `of_nothing` makes the row that is said where the whole job said none. Without
    `keeps_state` there is one micro-batch, which starts over if it is repeated.
    """

    job_id: str
    name: str
    make: Callable[[], Operator]
    groups: KeyGroups
    files: StateFiles
    inputs: tuple[int, ...]
    clocks: tuple[int, ...]
    output: pa.Schema
    late: str
    now_us: Callable[[], int]
    ttl_ms: int = 0
    idle_ms: Mapping[int, int] = field(default_factory=dict)
    lives_ms: tuple[tuple[str, int], ...] = ()
    calls: CallsSpec | None = None
    of_nothing: Callable[[], Row] | None = None
    keeps_state: bool = True
    buckets: str | None = None


class _KeptState:
    """What a process keeps of one task of an operator: its groups as they are after micro-batch `version`."""

    def __init__(self, spec: OperatorSpec, groups: range) -> None:
        self._spec = spec
        self.version = -1
        self.log = GroupLog(spec.files, groups, spec.groups.count)
        self.operators: dict[int, Operator] = {}
        self._states: dict[int, OperatorState] = {}
        self._shared = OperatorState()
        idle_us = {number: idle_ms * 1000 for number, idle_ms in spec.idle_ms.items()}
        self.clocks = Clocks(spec.clocks, idle_us, self._shared)

    def operator(self, group: int, now_us: int) -> Operator:
        """The operator of a group, made where the group had no row before."""
        found = self.operators.get(group)
        if found is None:
            state = self._states[group] = OperatorState(self._spec.ttl_ms, dict(self._spec.lives_ms))
            found = self.operators[group] = self._spec.make()
            found.open(state)
            state.set_clock(now_us)
        return found

    def set_clock(self, now_us: int) -> None:
        """Tell all groups the processing time."""
        for state in self._states.values():
            state.set_clock(now_us)

    def open_ends(self) -> OpenEnds | None:
        """What all groups wait for; None where the operator does not wait."""
        known = [ends for state in self._states.values() if (ends := state.open_ends()) is not None]
        whole = OpenEnds() if known else None
        for ends in known:
            whole = ends.with_more(whole) if whole is not None else ends
        return whole

    def restore(self, before: int) -> None:
        """Read the state before micro-batch `before`; nothing was there. Raises JobError CHECKPOINT_DAMAGED."""
        if self._spec.buckets is not None and self.log.latest(before) < 0:
            self._read_buckets(Path(self._spec.buckets), before)
        self.apply(self.log.restore(before))

    def apply(self, changes: Iterable[Sections]) -> None:
        """Take changes over."""
        for sections in changes:
            for group, change in sections.items():
                if group == SHARED:
                    self._shared.apply(change)
                else:
                    self.operator(group, 0)
                    self._states[group].apply(change)

    def keep(self, version: int) -> None:
        """Write what this micro-batch changed. Raises OSError."""
        deltas = {group: delta for group in sorted(self._states) if (delta := self._states[group].delta())}
        self.log.keep(version, deltas, self._snapshot, sorted(self._states), shared=self._shared.delta())
        self.version = version

    def _snapshot(self, group: int) -> bytes:
        return (self._shared if group == SHARED else self._states[group]).snapshot()

    def _read_buckets(self, directory: Path, before: int) -> None:
        """State as releases before key groups left it; each bucket had the event time of all of them."""
        found = [(group, BucketFiles(directory / str(group))) for group in self.log.groups]
        for group, files in found:
            for change in files.changes(before):
                self.apply([files.sections(group, change)])
                self.log.take_all()


_kept_states: Final = WorkerCache[tuple[str, str, int, int], _KeptState](MAX_KEPT_TASKS)


class OperatorStage:
    """The function of an operator's stage."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks: dict[int, list[dict[str, Any]]] = {}
        for batch in batches:
            for packed in batch.to_pylist():
                tasks.setdefault(packed["task"], []).append(packed)
        batch_id, now_us = micro_batch(), self._spec.now_us()
        for task in sorted(tasks):
            parts = sorted(tasks.pop(task), key=lambda one: (one["number"], one["origin"], one["part"]))
            with collector_paused():
                yield from self._run(task, batch_id, now_us, parts)

    def _run(self, task: int, batch_id: int, now_us: int, parts: Sequence[dict[str, Any]]) -> list[pa.RecordBatch]:
        """What a task says in a micro-batch; behind it where event time stands, and whether it idles."""
        groups = self._spec.groups.range_of(task)
        kept = self._state(groups, batch_id)
        seen = merge_seen(part["clocks"] for part in parts)
        before_us = kept.clocks.resume(seen, now_us)
        after_us = kept.clocks.advance(seen, now_us)
        turn = BatchTimes(before_us, END_OF_TIME_US if after_us >= END_TICK_US else after_us, now_us)
        kept.set_clock(now_us)
        output_rows = _SaidRows(self._spec.output)
        out = output_rows.out
        with self._telling(f"{self._spec.name}-{task}-{batch_id}"):
            inputs = self._inputs(parts)
            for group in inputs:
                kept.operator(group, now_us)
            for group in sorted(kept.operators):
                operator = kept.operators[group]
                for place, changes in inputs.pop(group, ()):
                    operator.process(place, changes, turn, out)
                operator.advance(turn, out)
                output_rows.flush(ROWS_PER_BATCH)
            if self._spec.of_nothing is not None and task == 0 and turn.is_last and output_rows.is_blank:
                out.insert(self._spec.of_nothing())
        self._report(task, batch_id, out, kept)
        if task == 0:
            # All tasks know the same of event time.
            times = QueueTimes(after_us, kept.clocks.queues(), _count_untimed(parts))
            times_spool(Path(self._spec.late)).put(self._spec.name, [times])
        if self._spec.keeps_state:
            kept.keep(batch_id)
            _kept_states.put(self._cache_key(groups), kept)
        ticks = [after_us] if after_us > START_OF_TIME_US else []
        return output_rows.batches([*ticks, IDLE_TICK_US] if kept.clocks.are_idle else ticks)

    def _report(self, task: int, batch_id: int, out: OperatorOutput, kept: _KeptState) -> None:
        """Leave for the driver what it counts and shows of a task."""
        name, directory = self._spec.name, Path(self._spec.late)
        if out.late:
            late_spool(directory).put(f"{name}-{task}-{batch_id}", [LateRows.of(name, out.late)])
        open_ends = kept.open_ends()
        if open_ends is not None:
            open_ends_spool(directory).put(f"{name}-{task}", [OperatorEnds(name, open_ends)])

    @contextmanager
    def _telling(self, piece: str) -> Iterator[None]:
        """While this lasts, failed calls of users' aggregates go to their spool."""
        calls = self._spec.calls
        if calls is None:
            yield
            return
        found: list[FailedCall] = []
        try:
            with collecting(fails=calls.fails, timeout_ms=calls.timeout_ms) as found:
                yield
        except UserFunctionFailed as failed:
            found.append(failed.call)
            raise
        finally:
            spooled = [SpooledCall(self._spec.name, one, one.given if calls.keeps_rows else b"") for one in found]
            calls.spool.put(piece, spooled)

    def _inputs(self, parts: Sequence[dict[str, Any]]) -> dict[int, list[tuple[int, Changes]]]:
        """The rows by group, of each input that has any, in the order of the inputs."""
        found: dict[int, list[tuple[int, Changes]]] = {}
        for place, count in enumerate(self._spec.inputs):
            batches = [
                batch
                for part in parts
                if part["number"] == place and part["rows"] is not None
                for batch in pa.ipc.open_stream(part["rows"])
            ]
            if batches:
                for group, rows in _by_group(pa.concat_batches(batches)):
                    found.setdefault(group, []).append((place, Changes(ArrowRows([rows], count), _kinds(rows))))
        return found

    def _cache_key(self, groups: range) -> tuple[str, str, int, int]:
        return self._spec.job_id, self._spec.name, groups.start, groups.stop

    def _state(self, groups: range, batch_id: int) -> _KeptState:
        """The state of a task before micro-batch `batch_id`: as this worker left it, brought up to date, or read."""
        kept = _kept_states.take_out(self._cache_key(groups))
        if kept is not None and kept.version == batch_id - 1:
            return kept
        if kept is not None and kept.log.can_follow(kept.version, batch_id):
            kept.apply(kept.log.follow(kept.version, batch_id))
            return kept
        fresh = _KeptState(self._spec, groups)
        if self._spec.keeps_state:
            fresh.restore(batch_id)
        return fresh


class _SaidRows:
    """What the groups of a task say, as record batches of `schema`: by row, by column, then the ticks."""

    def __init__(self, schema: pa.Schema) -> None:
        self.out = OperatorOutput()
        self._schema = schema
        self._ready: list[pa.RecordBatch] = []

    @property
    def is_blank(self) -> bool:
        """Whether nothing was said."""
        return not self._ready and not self.out.rows and not self.out.by_column

    def flush(self, least: int) -> None:
        """Put the rows that were said into columns, which need less memory, where they are as many as `least`."""
        out, fields = self.out, list(self._schema)
        if len(out.rows) >= least:
            for start in range(0, len(out.rows), ROWS_PER_BATCH):
                rows = out.rows[start : start + ROWS_PER_BATCH]
                kinds = pa.array(out.kinds[start : start + ROWS_PER_BATCH], fields[-2].type)
                arrays = [*batch_of(rows, fields[:-2]), kinds, pa.nulls(len(rows), fields[-1].type)]
                self._ready.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            out.rows.clear()
            out.kinds.clear()

    def batches(self, ticks: Sequence[int]) -> list[pa.RecordBatch]:
        """Everything that was said, then the ticks."""
        self.flush(1)
        found = [*self._ready, *self._by_column()]
        if ticks:
            fields = list(self._schema)
            arrays = [pa.nulls(len(ticks), field.type) for field in fields[:-1]]
            times = pa.array(ticks, pa.int64()).cast(fields[-1].type)
            found.append(pa.RecordBatch.from_arrays([*arrays, times], schema=self._schema))
        return found

    def _by_column(self) -> Iterator[pa.RecordBatch]:
        """Rows that come by column, those of several groups together."""
        waiting: list[pa.RecordBatch] = []
        for selected in self.out.by_column:
            for start in range(0, len(selected.places), ROWS_PER_BATCH):
                waiting.append(self._batch_by_column(selected, slice(start, start + ROWS_PER_BATCH)))
                if sum(one.num_rows for one in waiting) >= ROWS_PER_BATCH:
                    yield pa.concat_batches(waiting)
                    waiting = []
        if waiting:
            yield pa.concat_batches(waiting)

    def _batch_by_column(self, selected: SelectedRows, part: slice) -> pa.RecordBatch:
        rows = len(selected.places[part])
        arrays = [
            *columns_of(selected, part, list(self._schema)[:-2]),
            pa.array(np.full(rows, INSERT, np.int8)),
            pa.nulls(rows, self._schema.field(len(self._schema) - 1).type),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _by_group(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each key group, in their order."""
    groups = batch.column(GROUP_COLUMN).to_numpy()
    rows = batch.drop_columns([GROUP_COLUMN])
    if groups[0] == groups[-1] and (groups == groups[0]).all():
        yield int(groups[0]), rows
        return
    order = np.argsort(groups, kind="stable")
    in_order, numbers = rows.take(pa.array(order)), groups[order]
    starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))).tolist()
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(numbers[start]), in_order.slice(start, stop - start)


def _count_untimed(parts: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The rows without event time by source: as the input has them that got most, for several may read one source."""
    most: dict[int, int] = {}
    for place in {part["number"] for part in parts}:
        for number, seen in merge_seen(part["clocks"] for part in parts if part["number"] == place).items():
            if seen.untimed:
                most[number] = max(seen.untimed, most.get(number, 0))
    return most


def _kinds(batch: pa.RecordBatch) -> list[int] | None:
    """What the last column says of each row; None where all rows come."""
    kinds = batch.column(batch.num_columns - 1)
    if kinds.null_count == batch.num_rows:
        return None
    return [kind or INSERT for kind in kinds.to_pylist()]
