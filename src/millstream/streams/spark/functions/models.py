"""Model calls: one Arrow batch at a time in a Python worker, with the micro-batch's model version."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from millstream.streams.errors import JobError, ModelError
from millstream.streams.learning.model import ModelReference
from millstream.streams.learning.pinned_model import ModelFeed, PinnedModel, artefact_of
from millstream.streams.plan.expressions import Call
from millstream.streams.plan.types import Field
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.runtime.micro_batch import micro_batch

__all__ = ["ModelBook", "model_call"]

_book: ContextVar[ModelBook | None] = ContextVar("models of the pipeline that is translated", default=None)


class ModelBook:
    """The models of one pipeline, found while it is translated; `directory` is where it keeps their versions.

    `feed_of` gives the feed of a model of a topic.
    """

    def __init__(self, directory: Path, feed_of: Callable[[ModelReference], ModelFeed]) -> None:
        self._directory = directory
        self._feed_of = feed_of
        self._models: dict[str, PinnedModel] = {}

    @property
    def models(self) -> list[PinnedModel]:
        """Those that were called."""
        return list(self._models.values())

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """What is translated inside has its models written here."""
        token = _book.set(self)
        try:
            yield
        finally:
            _book.reset(token)

    def take(self, call: Call) -> PinnedModel:
        """The model that the call names."""
        reference = ModelReference.of_call(call.function)
        inputs = [Field(name, one.type) for name, one in zip(reference.inputs, call.arguments, strict=True)]
        feed = self._feed_of(reference) if reference.topic else None
        kept = PinnedModel(self._directory, reference, inputs, call.type.fields, feed)
        return self._models.setdefault(call.function, kept)


def model_call(call: Call, columns: Sequence[Column]) -> Column:
    """The column of a call of a model: a ROW of its outputs, NULL where an input is NULL."""
    book = _book.get()
    if book is None:
        raise JobError("JOB_FAILED", "A model is called outside of a job.")
    result = spark_type(call.type)
    names = ModelReference.of_call(call.function).inputs
    inputs = tuple(Field(name, one.type) for name, one in zip(names, call.arguments, strict=True))
    work = _Work(str(book.take(call).directory), inputs, call.type.fields)
    wrap: Callable[..., Callable[..., Column]] = arrow_udf
    return wrap(work.compute(to_arrow_type(result, timezone="UTC")), result)(*columns)


@dataclasses.dataclass(frozen=True)
class _Work:
    """What a worker needs to know of a call."""

    directory: str
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]

    def compute(self, arrow_type: pa.DataType) -> Callable[..., pa.Array]:
        def compute(*arrays: pa.Array) -> pa.Array:
            known = _are_known(arrays)
            columns = [array.filter(known).to_pylist() for array in arrays]
            scored = self._score(columns) if columns[0] else [[] for _ in self.outputs]
            fields = [pa.array(values, arrow_type.field(place).type) for place, values in enumerate(scored)]
            rows = pa.StructArray.from_arrays(fields, fields=[arrow_type.field(place) for place in range(len(fields))])
            # Each row takes the next one that was scored; a row with a NULL takes none.
            places = pc.subtract(pc.cumulative_sum(known.cast(pa.int64())), 1)
            return rows.take(pc.if_else(known, places, pa.scalar(None, pa.int64())))

        return compute

    def _score(self, columns: list[list[Any]]) -> list[list[Any]]:
        artefact, shown = artefact_of(self.directory, micro_batch())
        try:
            return artefact.score(columns, self.inputs, self.outputs)
        except ModelError:
            raise
        except Exception as error:
            words = f"The model {shown} could not score rows: {type(error).__name__}: {error}"
            raise JobError("JOB_FAILED", words) from error


def _are_known(arrays: Sequence[pa.Array]) -> pa.Array:
    """Whether each row has all of its values."""
    known = arrays[0].is_valid()
    for array in arrays[1:]:
        known = pc.and_(known, array.is_valid())
    return known
