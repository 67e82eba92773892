"""`spark.readStream.format("rocketmq")`: the entry that Spark knows; the one option is the encoded `SourceSpec`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.streams.spark.source.reader import TopicBatchReader, TopicStreamReader
from millstream.streams.spark.source.spec import SourceSpec

__all__ = ["SPEC_OPTION", "TopicDataSource"]

SPEC_OPTION = "spec"


class TopicDataSource(DataSource):
    """Topics of a RocketMQ cluster as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden tick."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return TopicBatchReader(self._spec())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return TopicStreamReader(self._spec())

    def _spec(self) -> SourceSpec:
        return SourceSpec.decode(self.options[SPEC_OPTION])
