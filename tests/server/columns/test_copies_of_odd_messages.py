"""Messages that do not fit a table, however odd, are rows of it and hold nothing up."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from column_bench import BORN_MS, CopyBench

from millstream.broker import cold_tier, column_copies
from millstream.model.message import OutgoingMessage
from millstream.model.moment import FIRST_MS, LAST_MS


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker does by itself is done by the tests."""
    for module in (cold_tier, column_copies):
        monkeypatch.setattr(module, "CLEAN_INTERVAL_S", 1e6)
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)


@pytest.mark.parametrize(
    ("columns", "fit", "odd"),
    [
        ("c TIMESTAMP(3)", b'"9999-12-31T23:59:59Z"', b'"9999-12-31T23:59:59-14:00"'),
        ("c TIMESTAMP_LTZ(6)", b'"0001-01-01T00:00:00Z"', b'"0001-01-01T00:00:00+14:00"'),
        ("c MAP<INT, STRING>", b'{"1": "one"}', b'{"one": "1"}'),
        ("c ROW<m ARRAY<MAP<DATE, INT>>>", b'{"m": [{"2026-01-02": 3}]}', b'{"m": [{"soon": 3}]}'),
    ],
)
async def test_a_body_that_does_not_fit_holds_up_no_other(tmp_path: Path, columns: str, fit: bytes, odd: bytes) -> None:
    bench = CopyBench(tmp_path, columns=columns)
    await bench.open()
    for value in (fit, odd, fit):
        await bench.send_body(b'{"c": %b}' % value)
    await bench.upload()
    await bench.copy()
    rows = bench.query("SELECT _queue_offset, c IS NULL, _problem IS NULL, _body FROM t ORDER BY 1")
    assert rows == [(0, False, True, None), (1, True, False, b'{"c": %b}' % odd), (2, False, True, None)]
    await bench.close()


@pytest.mark.parametrize("born_ms", [FIRST_MS - 1, LAST_MS + 1, BORN_MS * 1000, 2**63 - 1, -(2**63)])
async def test_a_time_of_birth_that_tables_do_not_have_is_null(tmp_path: Path, born_ms: int) -> None:
    bench = CopyBench(tmp_path)
    await bench.open()
    for moment in (BORN_MS, born_ms, FIRST_MS, LAST_MS):
        message = OutgoingMessage("t", b'{"id": 1}', {}, queue_id=0, born_timestamp_ms=moment)
        await bench.broker.delivery.send([message])
    await bench.upload()
    await bench.copy()
    rows = bench.query("SELECT epoch_ms(_born_at), id FROM t ORDER BY _queue_offset")
    assert rows == [(BORN_MS, 1), (None, 1), (FIRST_MS, 1), (LAST_MS, 1)]
    await bench.close()
