"""`spark.readStream.format("millstream-datagen")`: made-up rows in micro-batches, and once as a batch."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.streams.spark.source.data_source import SPEC_OPTION
from millstream.streams.spark.source.datagen.spec import DatagenSpec
from millstream.streams.spark.source.datagen.values import columns_maker
from millstream.streams.spark.source.made_rows import MadeBatchReader, MadeStreamReader

__all__ = ["DatagenDataSource"]


class DatagenDataSource(DataSource):
    """Made-up rows as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream-datagen"

    def schema(self) -> StructType:
        """The columns that the spec wants, then the hidden ones."""
        return self._spec().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return MadeBatchReader(self._spec(), columns_maker)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches."""
        return MadeStreamReader(self._spec(), columns_maker)

    def _spec(self) -> DatagenSpec:
        return DatagenSpec.decode(self.options[SPEC_OPTION])
