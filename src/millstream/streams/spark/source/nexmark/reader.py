"""`spark.readStream.format("nexmark")`: nexmark's events in micro-batches, and once as a batch."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.made_rows import MadeBatchReader, MadeStreamReader
from millstream.streams.spark.source.nexmark.columns import events_maker
from millstream.streams.spark.source.nexmark.spec import NexmarkSpec

__all__ = ["NexmarkDataSource"]


class NexmarkDataSource(DataSource):
    """The auction house as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "nexmark"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return MadeBatchReader(self._spec(), events_maker)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return MadeStreamReader(self._spec(), events_maker)

    def _spec(self) -> NexmarkSpec:
        return NexmarkSpec.decode(self.options[SPEC_OPTION])
