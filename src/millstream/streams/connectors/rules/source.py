"""The source of a rules table: a topic evaluated by rules, or hits packed by another query."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.options import milliseconds
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rocketmq.source import TopicSource
from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.connectors.rules.options import ORIGIN_OPTION
from millstream.streams.connectors.rules.packed_reader import PackedHitsSpec
from millstream.streams.connectors.rules.reader import HitsSpec, RulesDataSource
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.rules.kept_versions import KeptVersions
from millstream.streams.spark.rules.task_report import DEFAULT_ALLOWANCE_MS, Judged
from millstream.streams.spark.runtime.worker_pools import RULES_WORKERS, workers_for
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.reading import ReadDefaults, Reading
from millstream.streams.spark.source.spec import as_kind

__all__ = ["PackedHitsSource", "RulesSource"]


class PackedHitsSource(TopicSource):
    """Packed hits of the job that the table's option names. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""

    def __init__(self, table: Table, job: ReadDefaults) -> None:
        super().__init__(table, SourceSettings.of(table, job))

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The hits, unpacked in Spark's Python workers."""
        spec = as_kind(PackedHitsSpec, self.spec(spark, columns, reading), origin=self.table.options[ORIGIN_OPTION])
        return load_rows(spark, spec, batch=reading.batch, ends=reading.ends)


class RulesSource(TopicSource):
    """The hits of a store's rules over a topic. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""

    def __init__(self, table: Table, job: ReadDefaults) -> None:
        super().__init__(table, SourceSettings.of(table, job), waits=job.waits_for_topics)

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The hits, judged in Spark's Python workers. Raises RuleError where the store has never had rules to give."""
        judged = self._judging_spec(reading)
        version = KeptVersions(Path(judged.directory), Path(judged.store)).take()
        spec = as_kind(HitsSpec, self.spec(spark, columns, reading), judged=replace(judged, version=version))
        with workers_for(spark, RULES_WORKERS):
            spark.dataSource.register(RulesDataSource)
        return load_rows(spark, spec, batch=reading.batch, ends=reading.ends, source=RulesDataSource)

    def guard(self, reading: Reading, job: str) -> RuleGuard:
        """What looks after the rules of a pipeline called `job`."""
        return RuleGuard(self._judging_spec(reading), self.table, job)

    def _judging_spec(self, reading: Reading) -> Judged:
        options = self.table.options
        allowance = options.get("call-allowance")
        return Judged(
            store=str(Path(options["store"]).absolute()),
            directory=str((reading.notes / f"{self.table.name}-rules").absolute()),
            time_fields=tuple(name for name in options.get("event-time.field", "").split(";") if name),
            allowance_ms=DEFAULT_ALLOWANCE_MS if allowance is None else milliseconds(allowance),
            python_path=tuple(str(Path(entry).absolute()) for entry in sys.path),
        )
