"""Tests of orders.sql. No server runs: the rows come from the test, and what the job gives stays in memory.

Run: pytest examples/testing
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from millstream.testing import StreamTest

SCRIPT = (Path(__file__).parent / "orders.sql").read_text()


def order(shop: str, amount: int, second: int) -> dict[str, object]:
    return {"shop": shop, "amount": amount, "ts": datetime(2026, 1, 1, 0, 0, second)}


def test_a_window_waits_for_orders_that_are_five_seconds_late(stream_test: Callable[[str], StreamTest]) -> None:
    test = stream_test(SCRIPT)
    test.feed("orders", order("north", 10, 1), order("north", 5, 12)).cut()
    # The newest order is of second 12, so event time stands at 7 and this one is in time.
    test.feed("orders", order("north", 7, 8)).cut()
    # Event time comes to second 15 and closes the first window; the order behind that is too late for it.
    test.advance("orders", ts="2026-01-01 00:00:20").cut().cut()
    results = test.feed("orders", order("north", 100, 3)).crash_after(2).run()
    assert results.rows("sums") == [
        {"shop": "north", "total": 17, "till": datetime(2026, 1, 1, 0, 0, 10)},
        {"shop": "north", "total": 5, "till": datetime(2026, 1, 1, 0, 0, 20)},
    ]
    assert results.late_count == 1
    assert results.malformed == ()
