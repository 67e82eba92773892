"""Hits that another query of the job has packed into a topic, as a source of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rocketmq.source import TopicSource
from millstream.streams.connectors.rules.options import ORIGIN_OPTION
from millstream.streams.connectors.rules.packed_reader import PackedHitsSpec
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import DataType
from millstream.streams.spark.source.data_source import load_rows
from millstream.streams.spark.source.reading import ReadDefaults, Reading
from millstream.streams.spark.source.spec import as_kind

__all__ = ["PackedHitsSource"]


class PackedHitsSource(TopicSource):
    """Packed hits of the job that the table's option names. Raises NameRefused TOPIC_NOT_FOUND, ConnectionFailed."""

    def __init__(self, table: Table, job: ReadDefaults) -> None:
        super().__init__(table, SourceSettings.of(table, job))

    def load(self, spark: SparkSession, columns: Mapping[str, DataType], reading: Reading) -> DataFrame:
        """The hits, unpacked in Spark's Python workers."""
        spec = as_kind(PackedHitsSpec, self.spec(spark, columns, reading), origin=self.table.options[ORIGIN_OPTION])
        return load_rows(spark, spec, batch=reading.batch)
