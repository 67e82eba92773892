"""A query on top of an operator whose table is silent goes on with its other tables, on a real Spark."""

from __future__ import annotations

import datetime

import pytest

from millstream.testing import StreamTest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

TABLE = """
CREATE TABLE {name} (id STRING, at BIGINT, ts AS TO_TIMESTAMP_LTZ(at, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = '{name}'{option});
"""
SCRIPT = """
CREATE VIEW firsts AS SELECT id, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts) AS place FROM silent
) WHERE place = 1;
CREATE VIEW together AS SELECT id, ts FROM firsts UNION ALL SELECT id, ts FROM speaking;
SELECT UNIX_TIMESTAMP(CAST(window_start AS STRING)) AS since, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE together, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
"""
START = datetime.datetime(2026, 1, 1)


@pytest.mark.parametrize(("timeout", "spoken", "counts"), [("10 s", 1, [2]), ("10 s", 0, [1]), ("0 s", 1, [])])
def test_windows_behind_an_idle_operator_close_with_the_other_table(
    timeout: str, spoken: int, counts: list[int]
) -> None:
    option = f", 'scan.watermark.idle-timeout' = '{timeout}'"
    tables = TABLE.format(name="silent", option=option) + TABLE.format(name="speaking", option="")
    test = StreamTest(tables + SCRIPT, limit_s=900.0)
    test.set_processing_time(START)
    test.feed("silent", *[{"id": "a", "at": 1_000}] * spoken)
    test.feed("speaking", {"id": "b", "at": 1_000}).cut()
    test.set_processing_time(START + datetime.timedelta(minutes=1))
    test.feed("speaking", {"id": "c", "at": 25_000}).cut()
    assert [row["n"] for row in test.run(end=False).rows()] == counts
