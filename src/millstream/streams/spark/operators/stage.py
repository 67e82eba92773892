"""The stage in which operators run: takes the packed rows of its buckets, keeps their state, yields changed rows."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.streams.errors import JobError
from millstream.streams.functions.user_functions.failed_calls import FailedCall, UserFunctionFailed, collecting
from millstream.streams.operators.columns import SelectedRows
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
from millstream.streams.operators.state import OperatorState
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.operators.arrow_rows import ArrowRows, batch_of, columns_of
from millstream.streams.spark.operators.clocks import END_TICK_US, IDLE_TICK_US, Clocks, merge_seen
from millstream.streams.spark.operators.operator_reports import (
    LateRows,
    OperatorEnds,
    QueueTimes,
    late_spool,
    open_ends_spool,
    times_spool,
)
from millstream.streams.spark.runtime.micro_batch import collector_paused, micro_batch
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.spool import Spool
from millstream.streams.state.worker_cache import WorkerCache

__all__ = ["BucketFiles", "CallsSpec", "OperatorSpec", "OperatorStage", "Version"]


_MAGIC = b"MSB1"
_HEAD = struct.Struct("<4sIQ")
_DELTA, _SNAPSHOT = ".delta", ".snapshot"

MIN_SNAPSHOT_BYTES = 1024 * 1024
"""Deltas of fewer bytes than this are not replaced by a snapshot."""

MAX_DELTAS = 200
"""Deltas behind a snapshot at most: a start reads so many files of a bucket."""


@dataclass(frozen=True, slots=True)
class Version:
    """One file: the micro-batch after which it holds, and whether it stands alone."""

    number: int
    whole: bool


class BucketFiles:
    """The files of one bucket in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def latest(self, before: int) -> int:
        """The newest version before that number; -1 if there is none."""
        return max((version.number for version in self._versions() if version.number < before), default=-1)

    def changes(self, after: int, before: int) -> Iterator[tuple[bool, bytes]]:
        """What leads from version `after` to the newest one before `before`; True marks one that stands alone."""
        versions = sorted((one for one in self._versions() if one.number < before), key=lambda one: one.number)
        whole = max((one.number for one in versions if one.whole), default=-1)
        for version in versions:
            if version.number > after and version.number >= whole:
                yield version.whole, self._read(version)

    def keep(self, number: int, delta: bytes, snapshot: Callable[[], bytes]) -> None:
        """Write version `number` as `delta`, or from `snapshot` where the deltas have grown larger than one."""
        versions = [one for one in self._versions() if one.number < number]
        whole = max((one.number for one in versions if one.whole), default=-1)
        since = [one for one in versions if one.number > whole]
        base_bytes = self._size(Version(whole, True)) if whole >= 0 else 0
        grown_bytes = sum(self._size(one) for one in since) + len(delta)
        self._directory.mkdir(parents=True, exist_ok=True)
        if len(since) >= MAX_DELTAS or grown_bytes > max(MIN_SNAPSHOT_BYTES, base_bytes):
            self._write(Version(number, True), snapshot())
            self._path(Version(number, False)).unlink(missing_ok=True)
            # The version before this one is still needed if this micro-batch is repeated.
            for old in versions:
                if old.number < whole:
                    self._path(old).unlink(missing_ok=True)
        elif delta:
            self._write(Version(number, False), delta)

    def _versions(self) -> Iterator[Version]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        for name in names:
            number, suffix = os.path.splitext(name)
            if number.isdigit() and suffix in (_DELTA, _SNAPSHOT):
                yield Version(int(number), suffix == _SNAPSHOT)

    def _path(self, version: Version) -> Path:
        return self._directory / f"{version.number}{_SNAPSHOT if version.whole else _DELTA}"

    def _size(self, version: Version) -> int:
        return self._path(version).stat().st_size

    def _read(self, version: Version) -> bytes:
        path = self._path(version)
        content = path.read_bytes()
        if len(content) >= _HEAD.size:
            magic, checksum, size = _HEAD.unpack_from(content)
            body = content[_HEAD.size :]
            if magic == _MAGIC and size == len(body) and checksum == zlib.crc32(body):
                return body
        raise JobError("CHECKPOINT_DAMAGED", f"The state file {path} is damaged.")

    def _write(self, version: Version, body: bytes) -> None:
        content = _HEAD.pack(_MAGIC, zlib.crc32(body), len(body)) + body
        # No more durable than Spark's own note that the micro-batch is done.
        write_file(self._path(version), content, durable=False)


MAX_KEPT_BUCKETS: Final = 64
"""Buckets whose state a worker keeps in memory from one micro-batch to the next; the others are read again."""

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

    `make` gives a fresh instance. `directory` is where its buckets keep their state. `inputs` are the numbers of
    columns of each input; `clocks` the numbers of all sources and operators that move its event time; `output` the
    Arrow schema of its rows with the kind and the tick behind them. `late` is the spool of rows that came too
    late, of what is known of event time and of what waits for it, `now_us` tells the processing time, `calls` says
    what becomes of failed calls of users' aggregates. `idle_ms` is after how long a silent queue of a source holds
    nothing up, by the source's number. `of_nothing` makes the row that is said where the whole job said none. Without
    `keeps_state` there is one micro-batch, which begins anew if it is repeated.
    """

    job_id: str
    name: str
    make: Callable[[], Operator]
    directory: str
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


@dataclass(slots=True)
class _Bucket:
    """The state of a bucket in this process, as it is after `version`."""

    version: int
    operator: Operator
    state: OperatorState
    clocks: Clocks


_buckets: Final = WorkerCache[tuple[str, str, int], _Bucket](MAX_KEPT_BUCKETS)


class OperatorStage:
    """The function of an operator's stage."""

    def __init__(self, spec: OperatorSpec) -> None:
        self._spec = spec

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        buckets: dict[int, list[dict[str, Any]]] = {}
        for batch in batches:
            for packed in batch.to_pylist():
                buckets.setdefault(packed["bucket"], []).append(packed)
        batch_id, now_us = micro_batch(), self._spec.now_us()
        for number in sorted(buckets):
            parts = sorted(buckets.pop(number), key=lambda one: (one["number"], one["origin"], one["part"]))
            with collector_paused():
                out, ticks = self._run(number, batch_id, now_us, parts)
                yield from self._batches(out, ticks)

    def _run(
        self, number: int, batch_id: int, now_us: int, parts: Sequence[dict[str, Any]]
    ) -> tuple[OperatorOutput, list[int]]:
        """What a bucket says in a micro-batch, and the ticks behind it: where event time stands, and that it idles."""
        files = BucketFiles(Path(self._spec.directory) / str(number))
        bucket = self._bucket(number, files, batch_id)
        seen = merge_seen(part["clocks"] for part in parts)
        before_us = bucket.clocks.resume(seen, now_us)
        after_us = bucket.clocks.advance(seen, now_us)
        turn = BatchTimes(before_us, END_OF_TIME_US if after_us >= END_TICK_US else after_us, now_us)
        bucket.state.set_clock(now_us)
        out = OperatorOutput()
        with self._telling(f"{self._spec.name}-{number}-{batch_id}"):
            for place, changes in self._inputs(parts):
                bucket.operator.process(place, changes, turn, out)
            bucket.operator.advance(turn, out)
            if self._spec.of_nothing is not None and number == 0 and turn.is_last and not out.rows:
                out.insert(self._spec.of_nothing())
        self._report(number, batch_id, out, bucket)
        if number == 0:
            # All buckets know the same of event time.
            times = QueueTimes(after_us, bucket.clocks.queues(), _count_untimed(parts))
            times_spool(Path(self._spec.late)).put(self._spec.name, [times])
        if self._spec.keeps_state:
            files.keep(batch_id, bucket.state.delta(), bucket.state.snapshot)
            bucket.version = files.latest(batch_id + 1)
            _buckets.put((self._spec.job_id, self._spec.name, number), bucket)
        ticks = [after_us] if after_us > START_OF_TIME_US else []
        return out, [*ticks, IDLE_TICK_US] if bucket.clocks.are_idle else ticks

    def _report(self, number: int, batch_id: int, out: OperatorOutput, bucket: _Bucket) -> None:
        """Leave for the driver what it counts and shows of a bucket."""
        name, directory = self._spec.name, Path(self._spec.late)
        if out.late:
            late_spool(directory).put(f"{name}-{number}-{batch_id}", [LateRows.of(name, out.late)])
        open_ends = bucket.state.open_ends()
        if open_ends is not None:
            open_ends_spool(directory).put(f"{name}-{number}", [OperatorEnds(name, open_ends)])

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

    def _inputs(self, parts: Sequence[dict[str, Any]]) -> Iterator[tuple[int, Changes]]:
        """The rows of each input that has any."""
        for place, count in enumerate(self._spec.inputs):
            batches = [
                batch
                for part in parts
                if part["number"] == place and part["rows"] is not None
                for batch in pa.ipc.open_stream(part["rows"])
            ]
            if batches:
                yield place, Changes(ArrowRows(batches, count), _kinds(batches))

    def _bucket(self, number: int, files: BucketFiles, batch_id: int) -> _Bucket:
        """The bucket's state before micro-batch `batch_id`: as this worker left it, brought up to date, or read."""
        latest = files.latest(batch_id)
        kept = _buckets.take_out((self._spec.job_id, self._spec.name, number))
        if kept is not None and kept.version == latest:
            return kept
        if kept is None or kept.version > latest or any(whole for whole, _ in files.changes(kept.version, batch_id)):
            state = OperatorState(self._spec.ttl_ms, dict(self._spec.lives_ms))
            operator = self._spec.make()
            operator.open(state)
            idle_us = {number: idle_ms * 1000 for number, idle_ms in self._spec.idle_ms.items()}
            kept = _Bucket(-1, operator, state, Clocks(self._spec.clocks, idle_us, state))
        for _, change in files.changes(kept.version, batch_id):
            kept.state.apply(change)
        kept.version = latest
        return kept

    def _batches(self, out: OperatorOutput, ticks: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The rows that were said, then the ticks."""
        schema = self._spec.output
        fields = list(schema)
        for start in range(0, len(out.rows), ROWS_PER_BATCH):
            rows = out.rows[start : start + ROWS_PER_BATCH]
            kinds = pa.array(out.kinds[start : start + ROWS_PER_BATCH], fields[-2].type)
            arrays = [*batch_of(rows, fields[:-2]), kinds, pa.nulls(len(rows), fields[-1].type)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        for taken in out.by_column:
            yield from self._batches_by_column(taken)
        if ticks:
            arrays = [pa.nulls(len(ticks), field.type) for field in fields[:-1]]
            told = pa.array(ticks, pa.int64()).cast(fields[-1].type)
            yield pa.RecordBatch.from_arrays([*arrays, told], schema=schema)

    def _batches_by_column(self, taken: SelectedRows) -> Iterator[pa.RecordBatch]:
        """Rows that come by column."""
        schema = self._spec.output
        for start in range(0, len(taken.places), ROWS_PER_BATCH):
            part = slice(start, start + ROWS_PER_BATCH)
            places = taken.places[part]
            arrays = [
                *columns_of(taken, part, list(schema)[:-2]),
                pa.array(np.full(len(places), INSERT, np.int8)),
                pa.nulls(len(places), schema.field(len(schema) - 1).type),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _count_untimed(parts: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The rows without event time by source: as the input has them that got most, for several may read one source."""
    most: dict[int, int] = {}
    for place in {part["number"] for part in parts}:
        for number, seen in merge_seen(part["clocks"] for part in parts if part["number"] == place).items():
            if seen.untimed:
                most[number] = max(seen.untimed, most.get(number, 0))
    return most


def _kinds(batches: Sequence[pa.RecordBatch]) -> list[int] | None:
    """What the last column says of each row; None where all rows come."""
    if all(batch.column(-1).null_count == batch.num_rows for batch in batches):
        return None
    return [kind or INSERT for batch in batches for kind in batch.column(-1).to_pylist()]
