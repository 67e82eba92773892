"""Tables in a catalogue that a PostgreSQL server keeps, as brokers of a cluster share it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
pytest.importorskip("psycopg")

from column_bench import CopyBench

from database_servers import DATABASE, PASSWORD, USER, running_postgresql
from inline_columns import Crash
from millstream.broker import cold_tier, column_copies
from millstream.server.columns.orders import KeepTable, Order

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def catalog() -> Iterator[str]:
    """The address of the catalogue, without the password, as a broker has it."""
    with running_postgresql() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        port = server.options["url"].rpartition(":")[2].partition("/")[0]
        yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/{DATABASE}"


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker does by itself is done by the tests."""
    for module in (cold_tier, column_copies):
        monkeypatch.setattr(module, "CLEAN_INTERVAL_S", 1e6)
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)


async def test_brokers_share_a_table_in_postgresql_over_crashes_around_its_commits(
    tmp_path: Path, catalog: str
) -> None:
    one, other = CopyBench(tmp_path / "a"), CopyBench(tmp_path / "b")
    other.name, other.objects, other.lives = "broker-b", one.objects, 100
    for bench in (one, other):
        bench.catalog, bench.url, bench.store = catalog, one.url, one.store
        await bench.open()
    for count in (20, 13):
        for bench in (one, other):
            await bench.send(count)
            await bench.upload()
            bench.hook = partial(_crash, "after" if bench is one else "before")
            with pytest.raises(Crash):
                await bench.copy()
            await bench.crash()
            await bench.copy()
    rows = one.query("SELECT _broker, _queue_id, _queue_offset FROM t ORDER BY ALL")
    assert rows == [
        (bench.name, queue, offset)
        for bench in (one, other)
        for queue in sorted(bench.sent)
        for offset in range(len(bench.sent[queue]))
    ]
    await one.close()
    await other.close()


def _crash(place: str, when: str, order: Order) -> None:
    if when == place and isinstance(order, KeepTable):
        raise Crash
