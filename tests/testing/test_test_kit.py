"""The test kit without Spark: what may be fed, what is refused in words, and what changes add up to."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from millstream.protocol.record import split_record
from millstream.streams.errors import SqlError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sdk import StreamBuilder
from millstream.testing import FedMessage, Results, StreamTest
from millstream.testing.feed import Feed, encoded_row

TABLES = """
CREATE TABLE events (host STRING, bytes BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'events');
CREATE TABLE lines (host STRING, bytes BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'lines', 'format' = 'csv');
"""
QUERY = f"{TABLES} SELECT e.host FROM events AS e JOIN lines AS l ON e.host = l.host;"


def told(*changes: tuple[RowKind, tuple[object, ...]]) -> Results:
    return Results({"result": ("host", "bytes")}, {"result": [changes]})


def test_changes_add_up_to_a_table_and_to_rows_by_column() -> None:
    results = told(
        (RowKind.INSERT, ("a", 1)),
        (RowKind.INSERT, ("b", 2)),
        (RowKind.UPDATE_BEFORE, ("a", 1)),
        (RowKind.UPDATE_AFTER, ("a", 3)),
        (RowKind.DELETE, ("b", 2)),
    )
    assert results.rows() == [{"host": "a", "bytes": 3}]
    assert results.changelog()[2:4] == [("-U", ("a", 1)), ("+U", ("a", 3))]


def test_a_row_that_goes_and_was_not_there_is_an_error_of_the_job() -> None:
    with pytest.raises(AssertionError, match=r"takes back \('a', 1\)"):
        told((RowKind.DELETE, ("a", 1))).table()


def test_rows_with_arrays_and_maps_can_be_counted() -> None:
    results = told((RowKind.INSERT, (["x"], {"k": 1})), (RowKind.INSERT, (["x"], {"k": 1})))
    assert results.rows() == [{"host": ["x"], "bytes": {"k": 1}}] * 2


def test_an_output_is_named_where_there_are_several() -> None:
    results = Results({}, {"one": [], "two": []})
    with pytest.raises(KeyError, match="there are one, two"):
        results.table()
    with pytest.raises(KeyError, match="no output 'three'"):
        results.table("three")


def test_a_table_or_column_that_the_job_does_not_read_is_refused_with_those_that_it_does() -> None:
    test = StreamTest(QUERY)
    with pytest.raises(KeyError, match="no table 'event'; it reads events, lines"):
        test.feed("event", {"host": "a"})
    with pytest.raises(ValueError, match="no column 'size' in its messages; it has host, bytes"):
        test.feed("events", {"size": 1})


def test_a_dict_is_refused_where_messages_are_no_json() -> None:
    with pytest.raises(ValueError, match="format csv: feed it the text"):
        StreamTest(QUERY).feed("lines", {"host": "a"})


def test_event_time_cannot_pass_in_a_table_without_it() -> None:
    with pytest.raises(ValueError, match="events has no WATERMARK"):
        StreamTest(QUERY).advance("events", host="a")


def test_micro_batches_count_from_one() -> None:
    with pytest.raises(ValueError, match="they count from 1"):
        StreamTest(QUERY).crash_after(0)


def test_a_script_that_only_creates_tables_has_nothing_to_test() -> None:
    with pytest.raises(SqlError, match="no query and no INSERT"):
        StreamTest(TABLES)


def test_a_builder_is_tested_by_its_plan() -> None:
    builder = StreamBuilder("job")
    builder.source("readings", schema={"device": str, "value": int}).filter("value > 1").print("large")
    test = StreamTest(builder).feed("readings", {"device": "a", "value": 2})
    with pytest.raises(KeyError, match="no table 'others'; it reads readings"):
        test.feed("others", {})


def test_rows_become_json_with_times_as_sql_writes_them() -> None:
    row = {
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000),
        "instant": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        "price": Decimal("1.20"),
        "parts": [{"day": datetime.date(2026, 1, 2)}],
    }
    assert encoded_row(row) == (
        b'{"at":"2026-01-02 03:04:05.600000","instant":"2026-01-02 02:04:05Z","price":"1.20",'
        b'"parts":[{"day":"2026-01-02"}]}'
    )


def test_a_feed_knows_where_each_micro_batch_ends_after_its_file_is_read_again(tmp_path: Path) -> None:
    feed = Feed({}, [])
    feed.add(0, FedMessage({"a": 1}, key="k", tag="t", properties={"p": "v"}), 1000)
    feed.cut()
    feed.add(1, FedMessage("text"), 1001)
    feed.cut()
    feed.write(tmp_path / "feed")
    found = Feed.read(str(tmp_path / "feed"))
    assert found.ends == [{0: 1}, {0: 1, 1: 1}]
    assert found.entries[0][0].properties == b"p\x01v\x02KEYS\x01k\x02TAGS\x01t\x02"
    assert bytes(split_record(found.entries[1][0].record()).body) == b"text"


@pytest.mark.process
def test_importing_the_kit_and_its_plugin_loads_neither_spark_nor_arrow_nor_the_parser() -> None:
    code = (
        "import sys, millstream.testing.plugin;"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pyarrow') or '.streams' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_processing_time_is_told_from_the_first_micro_batch_on_and_never_goes_back() -> None:
    noon = datetime.datetime(2026, 1, 1, 12)
    test = StreamTest(QUERY).set_processing_time(noon)
    with pytest.raises(ValueError, match="does not go back"):
        test.set_processing_time(noon - datetime.timedelta(seconds=1))
    with pytest.raises(ValueError, match="from the first micro-batch on"):
        StreamTest(QUERY).cut().set_processing_time(noon)
