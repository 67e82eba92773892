"""The copy of a topic equals the topic, each message once, whatever fails between the file, the state and the table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from column_bench import BROKER, CopyBench, Crash
from crash.faulty_objects import ObjectFault

from millstream.broker import cold_tier, column_copies
from millstream.broker.column_copies import REMOVED_GRACE_MS
from millstream.model.errors import MillstreamError
from millstream.server.columns.orders import CopyMessages, KeepTable, Order

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker does by itself is done by the tests."""
    for module, names in (
        (cold_tier, ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S")),
        (column_copies, ("COPY_INTERVAL_S", "CLEAN_INTERVAL_S")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 1e6)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[CopyBench]:
    made = CopyBench(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_a_table_read_by_duckdb_equals_the_topic(bench: CopyBench) -> None:
    await bench.send(300)
    await bench.upload()
    await bench.copy()
    rows = bench.query(
        "SELECT _queue_id, _queue_offset, _broker, _message_id, _keys, _tag, _properties, id, name, price, "
        "epoch_ms(_stored_at), epoch_ms(_born_at), _problem, _body FROM t ORDER BY _queue_id, _queue_offset"
    )
    wanted = []
    for queue in sorted(bench.sent):
        for offset, message in enumerate(bench.sent[queue]):
            fields, held = json.loads(message.body), message.properties
            wanted.append(
                (queue, offset, BROKER, held["UNIQ_KEY"], held["KEYS"].split(), held["TAGS"], {"color": "red"},
                 fields["id"], fields["name"], Decimal(fields["price"]))
            )  # fmt: skip
    assert [row[:10] for row in rows] == wanted
    assert all(row[10] == bench.clock.now_ms() or row[10] > 0 for row in rows)
    assert {row[12:] for row in rows} == {(None, None)}
    assert len(bench.table_files()) > 1 or len(bench.broker.columns.map.present("t")) >= 1
