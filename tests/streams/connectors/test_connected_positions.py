"""How a connector's offsets become micro-batches, and its rows what Spark takes."""

from __future__ import annotations

import datetime
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.protocols import SourcePartition
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, STRING, DataType, TypeKind
from millstream.streams.spark.columns.types import arrow_schema
from millstream.streams.spark.source.connected import (
    ConnectedBatchReader,
    ConnectedSpec,
    ConnectedStreamReader,
    cap_rows,
    fit_batch,
)
from millstream.streams.spark.source.data_source import decode_spec, encode_spec, load_rows
from millstream.streams.spark.source.position import Position

QUEUES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50))


@settings(deadline=None)
@given(QUEUES, QUEUES, st.integers(0, 60))
def test_a_micro_batch_goes_on_where_there_is_more_and_never_back_nor_too_far(
    begin: dict[str, int], more: dict[str, int], max_rows: int
) -> None:
    latest = {queue: begin.get(queue, 0) + count for queue, count in more.items()}
    ends = cap_rows(begin, latest, max_rows)
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
    row = fit_batch(given_rows, wanted, "q/0", "t").to_pylist()[0]
    assert list(row.values()) == [7, None, moment.replace(tzinfo=datetime.UTC), "q/0", None]


def test_a_column_of_another_type_is_named() -> None:
    wanted = arrow_schema(spec().schema())
    with pytest.raises(JobError, match="gives id as string, which does not fit int64"):
        fit_batch(pa.RecordBatch.from_pydict({"id": ["x"]}), wanted, None, "t")


def test_a_spec_travels_as_text() -> None:
    place = f"{ConnectedSpec.__module__}:{ConnectedSpec.__qualname__}"
    assert decode_spec(encode_spec(spec(queues=True)), place) == spec(queues=True)


def test_the_text_of_a_spec_is_an_option_that_spark_does_not_show() -> None:
    given: dict[str, str] = {}

    class Reader:
        def format(self, name: str) -> Reader:
            return self

        def options(self, **options: str) -> Reader:
            given.update(options)
            return self

        def load(self) -> None:
            """Nothing."""

    load_rows(SimpleNamespace(read=Reader()), spec(), batch=True)  # type: ignore[arg-type]
    shown = [name for name, value in given.items() if "columns" in value]
    assert shown
    assert all(re.search("(?i)secret|password|token|access[.]?key", name) for name in shown)


def test_options_are_not_among_what_a_table_shows() -> None:
    assert "secret" not in repr(ConnectedTable("t", (), {"password": "secret"}))


class Growing:
    """A source of one queue that has three rows more at each look."""

    def __init__(self, table: ConnectedTable) -> None:
        self.rows = 0

    def first(self) -> dict[str, int]:
        return {}

    def latest(self) -> dict[str, int]:
        self.rows += 3
        return {"q": self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[SourcePartition]:
        return [SourcePartition("q", start.get("q", 0), end["q"])]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": list(range(partition.start, partition.end))})


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> ConnectedSpec:
    row = Connector("growing", (), reads=True, source=f"{__name__}:Growing")
    monkeypatch.setitem(CONNECTORS.own, "growing", row)
    table = ConnectedTable("t", (ConnectedColumn("id", BIGINT),))
    return ConnectedSpec("growing", table, Position(name="t"), Position(name="t"), final_tick=True)


def rows_of(reader: ConnectedStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int | None]:
    copied = pickle.loads(pickle.dumps(reader))
    return [
        row["id"] for part in reader.partitions(start, end) for batch in copied.read(part) for row in batch.to_pylist()
    ]


def test_a_stream_goes_on_with_what_has_come_and_tells_how_far_behind_it_is(growing: ConnectedSpec) -> None:
    reader = ConnectedStreamReader(growing)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    assert rows_of(reader, start, end) == [0, 1]
    told = reader.reportLatestOffset()
    assert told is not None
    assert Position.from_json(told).rows_since(Position.from_json(end)) == 1
    assert rows_of(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [2, 3, 4, 5]


def test_a_bounded_run_ends_with_what_was_there_and_then_with_a_tick(growing: ConnectedSpec) -> None:
    reader = ConnectedStreamReader(growing)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows_of(reader, start, end) == [0, 1, 2]
    last = reader.latestOffset(end, ReadAllAvailable())
    assert Position.from_json(last).ended
    assert rows_of(reader, end, last) == [None]
    assert reader.latestOffset(last, ReadAllAvailable()) == last


def test_a_batch_reads_between_two_positions(growing: ConnectedSpec) -> None:
    reader = ConnectedBatchReader(replace(growing, end=Position({"q": 2}, name="t"), final_tick=False))
    assert [row["id"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()] == [
        0,
        1,
    ]
