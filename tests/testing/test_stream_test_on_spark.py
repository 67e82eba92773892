"""The test kit on Spark: cuts, event time, crashes, and the batch beside the stream."""

from __future__ import annotations

import datetime

import pytest

from millstream.testing import StreamTest

LIMIT_S = 600.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SHOP = """
CREATE TABLE orders (shop STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'rocketmq', 'topic' = 'orders', 'format' = 'json');
CREATE TABLE sums (shop STRING, total BIGINT, till TIMESTAMP(3)) WITH ('connector' = 'rocketmq', 'topic' = 'sums');
"""
WINDOWS = f"""{SHOP}
INSERT INTO sums SELECT shop, SUM(amount), window_end
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY shop, window_start, window_end;
"""
RUNNING = f"{SHOP} SELECT shop, SUM(amount) AS total FROM orders GROUP BY shop;"


def at(second: int) -> str:
    return f"2026-01-01 00:00:{second:02}"


def moment(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, 0, 0, second)


def order(shop: str, amount: int, second: int) -> dict[str, object]:
    return {"shop": shop, "amount": amount, "ts": at(second)}


def test_a_window_closes_when_event_time_has_passed_it_and_late_rows_are_told() -> None:
    test = StreamTest(WINDOWS, limit_s=LIMIT_S)
    test.feed("orders", order("a", 1, 1), order("a", 2, 9), "no json").cut()
    test.advance("orders", ts=at(15)).cut()
    early = test.run(end=False)
    assert early.table() == {("a", 3, moment(10)): 1}
    assert [(letter.table, letter.offset, letter.body) for letter in early.malformed] == [("orders", 2, b"no json")]
    test.feed("orders", order("a", 100, 5), order("a", 7, 16))
    ended = test.run()
    assert ended.table() == {("a", 3, moment(10)): 1, ("a", 7, moment(20)): 1}
    assert ended.late_count == 1
    assert [row["amount"] for row in ended.late["orders"]] == [100]


def test_a_job_that_crashes_between_its_outputs_and_its_checkpoint_says_each_row_once() -> None:
    test = StreamTest(RUNNING, limit_s=LIMIT_S)
    test.feed("orders", order("a", 1, 1)).cut()
    test.feed("orders", order("a", 2, 2), order("b", 5, 3)).cut()
    test.feed("orders", order("b", 5, 4))
    results = test.crash_after(2).run()
    assert results.rows() == [{"shop": "a", "total": 3}, {"shop": "b", "total": 10}]
    assert results.changelog() == [
        *[("+I", ("a", 1))],
        *[("-U", ("a", 1)), ("+U", ("a", 3)), ("+I", ("b", 5))],
        *[("-U", ("b", 5)), ("+U", ("b", 10))],
    ]
    test.assert_same_as_batch()


def test_windows_over_processing_time_go_by_what_the_test_says() -> None:
    script = """
    CREATE TABLE clicks (page STRING, p AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 'clicks');
    SELECT page, window_start, COUNT(*) AS clicks
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(p), INTERVAL '10' SECOND)) GROUP BY page, window_start, window_end;
    """
    test = StreamTest(script, limit_s=LIMIT_S)
    test.set_processing_time(moment(1)).feed("clicks", {"page": "a"}, {"page": "a"}).cut()
    test.set_processing_time(moment(9)).feed("clicks", {"page": "a"}).cut()
    test.set_processing_time(moment(12)).feed("clicks", {"page": "b"})
    assert test.run(end=False).table() == {("a", moment(0), 3): 1}
    assert test.run().table() == {("a", moment(0), 3): 1, ("b", moment(10), 1): 1}
