"""Readers of hits: a topic in micro-batches, each evaluated by one rule set version, and as one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from millstream.streams.connectors.rocketmq.reader import TopicBatchReader, TopicSpec, TopicStreamReader, read_partition
from millstream.streams.spark.rules.kept_versions import KeptVersions
from millstream.streams.spark.rules.task_report import Judged, report_name, report_spool
from millstream.streams.spark.source.data_source import TableDataSource
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HitsBatchReader", "HitsSpec", "HitsStreamReader", "RulesDataSource"]


_JUDGED_TOGETHER: Final = 16_000
"""Messages of one batch: judging costs a little for each class of events in it. Those of 2 KB take 32 MB."""


_TASKS_PER_CORE: Final = 2
"""Of a micro-batch. Events of one queue may take longer than as many of another; few tasks would wait for one."""


class RulesDataSource(TableDataSource):
    """The entry of reads whose workers judge: Spark has workers of their own for them (see `spark.worker_pools`)."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream-rules"


@dataclass(frozen=True, slots=True)
class HitsSpec(TopicSpec):
    """One read of the hits of rules over a topic."""

    judged: Judged = field(default_factory=lambda: Judged("", ""))
    """Which rules, and where a job keeps what it knows of them."""

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        return HitsStreamReader(self)

    def batch_reader(self) -> DataSourceReader:
        """A reader of the range in the spec."""
        return HitsBatchReader(self)


class HitsStreamReader(TopicStreamReader):
    """Micro-batches of hits. The version of the rules is part of each position, so a replay judges as before."""

    _spec: HitsSpec

    def __init__(self, spec: HitsSpec) -> None:
        super().__init__(_in_more_tasks(spec))
        self._judged = spec.judged
        self._fixed: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_judged": self._judged, "_fixed": None}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a bounded run, and the rules that judge it."""
        super().prepareForTriggerAvailableNow()
        self._fixed = self._versions().take()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch with the version that judges it; `start` where there is nothing to read."""
        end = super().latestOffset(start, limit)
        if end == start:
            return start
        version = self._versions().take() if self._fixed is None else self._fixed
        return replace(Position.from_json(end), rules=version).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return _judged_by(Position.from_json(end).rules, super().partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The hits of one task; runs in a worker."""
        return _read(self._spec, partition)

    def _versions(self) -> KeptVersions:
        return KeptVersions(Path(self._judged.directory), Path(self._judged.store))


class HitsBatchReader(TopicBatchReader):
    """The hits between the spec's start and end, by the version in the spec."""

    _spec: HitsSpec

    def __init__(self, spec: HitsSpec) -> None:
        super().__init__(_in_more_tasks(spec))
        self._version = spec.judged.version

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        return _judged_by(self._version, super().partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The hits of one task; runs in a worker."""
        return _read(self._spec, partition)


def _in_more_tasks(spec: HitsSpec) -> HitsSpec:
    return replace(spec, parallelism=spec.parallelism * _TASKS_PER_CORE)


def _judged_by(version: int, tasks: Sequence[InputPartition]) -> Sequence[InputPartition]:
    for task in tasks:
        assert isinstance(task, TopicPartition)
        task.rules = version
    return tasks


def _read(spec: HitsSpec, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # What judges is heavy, and the process that plans micro-batches has no use for it.
    from millstream.streams.spark.rules.hit_rows import HitRows
    from millstream.streams.spark.rules.stages import stages

    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no partition of a topic")
    judged = spec.judged
    kept = stages()
    rows = HitRows(spec, judged, partition.rules, kept)
    yield from read_partition(spec, partition, rows, _JUDGED_TOGETHER)
    report = rows.finish()
    if report.events and partition.slices:
        report_spool(Path(judged.directory)).put(report_name(partition.slices), [report])
