"""How a connector's offsets become micro-batches, and its rows what Spark takes."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, STRING, DataType, TypeKind
from millstream.streams.spark.source.connected import ConnectedSpec, capped, fitted
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.types import arrow_schema

QUEUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50))


@settings(deadline=None)
@given(QUEUES, QUEUES, st.integers(0, 60))
def test_a_micro_batch_goes_on_where_there_is_more_and_never_back_nor_too_far(
    begin: dict[str, int], more: dict[str, int], max_rows: int
) -> None:
    latest = {queue: begin.get(queue, 0) + count for queue, count in more.items()}
    ends = capped(begin, latest, max_rows)
    rows = sum(ends[queue] - begin.get(queue, 0) for queue in ends)
    assert all(begin.get(queue, 0) <= ends[queue] <= max(latest.get(queue, 0), begin.get(queue, 0)) for queue in ends)
    assert (rows > 0) == (sum(more.values()) > 0)
    assert max_rows == 0 or rows <= max_rows + len(more)
    assert max_rows or rows == sum(more.values())


def spec(*, queues: bool = False) -> ConnectedSpec:
    moment = DataType(TypeKind.TIMESTAMP, precision=3)
    columns = (ConnectedColumn("id", BIGINT), ConnectedColumn("word", STRING), ConnectedColumn("at", moment))
    return ConnectedSpec("c", ConnectedTable("t", columns), Position(), Position(), queues=queues)


def test_rows_of_a_connector_take_the_types_of_the_table_and_lack_nothing() -> None:
    wanted = arrow_schema(spec(queues=True).schema())
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    given_rows = pa.RecordBatch.from_pydict({"at": [moment], "id": pa.array([7], pa.int32()), "more": [1]})
    row = fitted(given_rows, wanted, "q/0", "t").to_pylist()[0]
    assert list(row.values()) == [7, None, moment.replace(tzinfo=datetime.UTC), "q/0", None]


def test_a_column_of_another_type_is_named() -> None:
    wanted = arrow_schema(spec().schema())
    with pytest.raises(JobError, match="gives id as string, which does not fit int64"):
        fitted(pa.RecordBatch.from_pydict({"id": ["x"]}), wanted, None, "t")


def test_a_spec_travels_as_text() -> None:
    assert ConnectedSpec.decode(spec(queues=True).encode()) == spec(queues=True)


def test_options_are_not_among_what_a_table_shows() -> None:
    assert "secret" not in repr(ConnectedTable("t", (), {"password": "secret"}))
