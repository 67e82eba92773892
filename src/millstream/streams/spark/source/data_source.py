"""`spark.readStream.format("millstream")`: the single data source that Spark sees for all tables.

Its options are the encoded `ReadSpec` and the name of the spec's class, which knows the readers. Spark keeps neither
in a checkpoint: there are offsets alone, in the form of `Position`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol, cast

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from millstream.streams.connectors.opening import code_of
from millstream.streams.spark.source.agreed_ends import AgreedReader

__all__ = ["ReadSpec", "TableDataSource", "decode_spec", "encode_spec", "load_rows"]

_SPEC_OPTION: Final = "secret-spec"
"""The encoded spec, which may hold secrets: Spark shows no option of such a name (spark.redaction.regex)."""

_CLASS_OPTION: Final = "spec-class"
"""Where the spec's class is, as 'module:name'."""

_ENDS_OPTION: Final = "ends-file"
"""The file by which several passes agree how far a micro-batch reads."""


class ReadSpec(Protocol):
    """One read of a table: a dataclass, which travels as JSON to all processes of a query."""

    def schema(self) -> StructType:
        """Spark's schema of the rows: the columns, then the hidden ones."""
        ...

    def stream_reader(self) -> DataSourceStreamReader:
        """A reader of micro-batches."""
        ...

    def batch_reader(self) -> DataSourceReader:
        """A reader of a fixed range, once."""
        ...


def encode_spec(spec: ReadSpec) -> str:
    """The JSON text."""
    return msgspec.json.encode(spec).decode()


def decode_spec(text: str, place: str) -> ReadSpec:
    """The value of a text made by `encode_spec`, of the class at `place`."""
    return cast("ReadSpec", msgspec.json.decode(text, type=code_of(place)))


class TableDataSource(DataSource):
    """A table as a Spark data source, streaming and batch."""

    @classmethod
    def name(cls) -> str:
        """The word for `format`."""
        return "millstream"

    def schema(self) -> StructType:
        """What the spec says."""
        return self._spec.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the range in the spec."""
        return self._spec.batch_reader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader of micro-batches, which goes on behind a change of the query."""
        return AgreedReader(self._spec.stream_reader(), self.options.get(_ENDS_OPTION, ""))

    @cached_property
    def _spec(self) -> ReadSpec:
        return decode_spec(self.options[_SPEC_OPTION], self.options[_CLASS_OPTION])


def load_rows(
    spark: SparkSession,
    spec: ReadSpec,
    *,
    batch: bool,
    source: type[TableDataSource] = TableDataSource,
    ends: Path | None = None,
) -> DataFrame:
    """The rows of a read, in micro-batches or once, by a data source that Spark knows already.

    `ends` is the file by which several passes agree how far a micro-batch reads.
    """
    reader: Any = spark.read if batch else spark.readStream
    place = f"{type(spec).__module__}:{type(spec).__qualname__}"
    options = {_SPEC_OPTION: encode_spec(spec), _CLASS_OPTION: place}
    if ends is not None:
        options[_ENDS_OPTION] = str(ends.absolute())
    return cast("DataFrame", reader.format(source.name()).options(**options).load())
