"""Hits that another query of the job has packed into a topic, as a source of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.rules.options import ORIGIN_OPTION
from millstream.streams.jobs.settings import JobSettings, SourceSettings
from millstream.streams.jobs.sources import Reading, TopicSource
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.rules.packed_reader import PackedHitsDataSource
from millstream.streams.spark.source.data_source import SPEC_OPTION

__all__ = ["PackedHitsSource"]


class PackedHitsSource(TopicSource):
    """Packed hits of the job that the table's option names. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""

    def __init__(self, table: Table, job: JobSettings) -> None:
        super().__init__(table, SourceSettings.of(table, job))

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The hits, unpacked in Spark's Python workers."""
        spec = replace(self.spec(spark, columns, reading), origin=self.table.options[ORIGIN_OPTION])
        spark.dataSource.register(PackedHitsDataSource)
        return spark.readStream.format(PackedHitsDataSource.name()).option(SPEC_OPTION, spec.encode()).load()
