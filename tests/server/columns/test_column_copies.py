"""The copy of a topic equals the topic, each message once, whatever fails between the file, the state and the table."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from column_bench import BORN_MS, BROKER, COLUMNS, SMALL, CopyBench
from crash.faulty_objects import ObjectFault

from inline_columns import Crash
from millstream.broker import cold_merges, cold_tier, column_copies
from millstream.broker.column_copies import REMOVED_GRACE_MS
from millstream.model.errors import MillstreamError
from millstream.model.topic import ColumnAttributes, copy_attributes
from millstream.server.columns.orders import CopyMessages, KeepTable, Order
from millstream.server.restoring import restore_broker
from millstream.tiered import merge_plan

HOUR_MS = 3_600_000
SENT_MS = 1_700_000_000_000
"""When a bench sends what it sends first."""


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
    assert {row[10:] for row in rows} == {(SENT_MS, BORN_MS, None, None)}


class CrashAt:
    """Crashes at the nth place, of those before and behind each order, and counts the places."""

    def __init__(self, place: int | None) -> None:
        self.place, self.seen = place, 0

    def __call__(self, _when: str, _order: Order) -> None:
        self.seen += 1
        if self.seen - 1 == self.place:
            raise Crash


async def _fill_and_copy(bench: CopyBench) -> None:
    await bench.send(40)
    await bench.upload()
    await bench.copy()
    await bench.send(25)
    await bench.upload()
    await bench.copy()


async def _places_of_orders(root: Path) -> int:
    bench, counted = CopyBench(root), CrashAt(None)
    await bench.open()
    bench.hook = counted
    await _fill_and_copy(bench)
    await bench.close()
    return counted.seen


async def test_a_crash_around_any_order_neither_loses_nor_doubles_a_row(tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    places = await _places_of_orders(tmp_path / "counted")
    assert places > 8
    for place in range(places):
        root = tmp_path / str(place)
        root.mkdir()
        bench = CopyBench(root)
        await bench.open()
        bench.hook = CrashAt(place)
        with suppress(Crash):
            await _fill_and_copy(bench)
        await bench.crash()
        missing = 65 - len(bench.wanted_places())
        await bench.send(missing)
        await bench.upload()
        await bench.copy()
        assert bench.places() == bench.wanted_places(), f"a crash at place {place}"
        await bench.close()


async def test_a_fault_of_the_store_at_any_call_neither_loses_nor_doubles_a_row(tmp_path: Path) -> None:
    """Then a crash, so that what is known of the fault is gone as well."""
    calls, number = 1, 0
    while number < calls:
        for fault in (ObjectFault.BEFORE, ObjectFault.AFTER, ObjectFault.ALTERED):
            root = tmp_path / f"{number}{fault.name}"
            root.mkdir()
            bench = CopyBench(root)
            await bench.open()
            await bench.send(40)
            await bench.upload()
            begun = len(bench.objects.calls)
            bench.objects.plan.extend([*[None] * number, fault])
            await bench.broker.columns.copy_due()
            await bench.broker.columns.copy_due()
            calls = max(calls, len(bench.objects.calls) - begun)
            await bench.crash()
            await bench.copy()
            assert bench.places() == bench.wanted_places(), f"{fault.name} at call {number}"
            await bench.close()
        number += 1
    assert calls > 8


async def test_a_file_that_was_put_before_a_crash_is_not_put_again(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()

    def crash_behind_the_file(when: str, order: Order) -> None:
        if when == "after" and isinstance(order, CopyMessages):
            raise Crash

    bench.hook = crash_behind_the_file
    with pytest.raises(Crash):
        await bench.broker.columns.copy_due()
    [left] = _data_keys(bench)
    content = bench.objects.objects[left]
    await bench.crash()
    # What is cold by now must not make another file of what was copied.
    await bench.send(5)
    await bench.upload()
    await bench.copy()
    assert _data_keys(bench) == [*bench.broker.columns.map.present("t")]
    assert left in _data_keys(bench)
    assert bench.objects.objects[left] == content
    assert bench.places() == bench.wanted_places()


async def test_bodies_that_do_not_fit_are_rows_with_the_body_as_it_is(bench: CopyBench) -> None:
    await bench.send(2, queue_id=0)
    await bench.send_body(b"no json")
    await bench.send_body(b'{"id": "many", "name": "x"}')
    await bench.send(1, queue_id=0)
    await bench.upload()
    await bench.copy()
    rows = bench.query("SELECT _queue_offset, id, name, _body, _problem IS NULL FROM t ORDER BY 1")
    assert rows == [
        (0, 0, "n0", None, True),
        (1, 1, "n1", None, True),
        (2, None, None, b"no json", False),
        (3, None, None, b'{"id": "many", "name": "x"}', False),
        (4, 4, "n4", None, True),
    ]
    [status] = bench.broker.columns.status()
    assert (status.rows, status.malformed, status.lost) == (5, 2, 0)


async def test_added_columns_become_columns_of_the_table(bench: CopyBench) -> None:
    await bench.send(3, queue_id=0)
    await bench.upload()
    await bench.copy()
    _declare(bench, f"{COLUMNS}, place ROW<city STRING, zip INT>")
    await bench.send(2, queue_id=0, place={"city": "Ulm", "zip": 89073})
    await bench.upload()
    await bench.copy()
    _declare(bench, f"{COLUMNS}, place ROW<city STRING, zip INT, land STRING>")
    await bench.send(1, queue_id=0, place={"city": "Bern", "land": "CH"})
    await bench.upload()
    await bench.copy()
    rows = bench.query("SELECT id, place.city, place.zip, place.land FROM t ORDER BY _queue_offset")
    assert rows == [(n, None, None, None) for n in range(3)] + [
        (3, "Ulm", 89073, None),
        (4, "Ulm", 89073, None),
        (5, "Bern", None, "CH"),
    ]
    assert _table_names(bench)[-4:] == ["id", "name", "price", "place"]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("id STRING, name STRING, price DECIMAL(10, 2)", "the column id was BIGINT and is STRING now"),
        ("id BIGINT, name STRING", "the column price is left out"),
        ("id BIGINT, name STRING, price DECIMAL(12, 2)", "the column price was DECIMAL(10, 2) and is DECIMAL(12, 2)"),
        ("id BIGINT, name STRING, price DECIMAL(10, 2), x NOTYPE", "NOTYPE"),
        ("id BIGINT, name STRING, price DECIMAL(10, 2), _BODY STRING", "'_body' is a column of every copy"),
    ],
)
async def test_columns_that_do_not_fit_are_refused_and_the_copy_goes_on_with_those_before(
    bench: CopyBench, columns: str, why: str
) -> None:
    await bench.send(3, queue_id=0)
    await bench.upload()
    await bench.copy()
    _declare(bench, columns)
    await bench.send(2, queue_id=0)
    await bench.upload()
    await bench.copy()
    [status] = bench.broker.columns.status()
    assert why in status.problem
    assert status.columns == COLUMNS
    assert bench.broker.columns.report().refused == 1
    assert bench.query("SELECT id, price FROM t ORDER BY 1") == [(n, Decimal(f"{n}.50")) for n in range(5)]
    _declare(bench, COLUMNS)
    await bench.copy()
    assert bench.broker.columns.status()[0].problem == ""


async def test_columns_that_were_never_right_hold_the_copy_until_they_are(tmp_path: Path) -> None:
    bench = CopyBench(tmp_path, columns="id BIGINT, id STRING")
    await bench.open()
    await bench.send(4)
    await bench.upload()
    await bench.copy()
    assert "two columns are called 'id'" in bench.broker.columns.status()[0].problem
    assert _data_keys(bench) == []
    _declare(bench, COLUMNS)
    await bench.copy()
    assert bench.places() == bench.wanted_places()
    await bench.close()


async def test_old_files_leave_the_table_first_and_the_store_later(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    old = _data_keys(bench)
    bench.clock.advance_ms(1001 * HOUR_MS)
    fresh = len(bench.wanted_places())
    await bench.send(4)
    await bench.upload()
    await bench.broker.columns.clean()
    await bench.copy()
    assert len(bench.places()) == 4
    assert set(old) <= set(_data_keys(bench))
    bench.clock.advance_ms(REMOVED_GRACE_MS + 1)
    await bench.broker.columns.clean()
    assert set(old).isdisjoint(_data_keys(bench))
    await bench.crash()
    await bench.copy()
    assert len(bench.places()) == 4
    assert bench.query("SELECT min(id) FROM t") == [(fresh,)]


async def test_what_a_table_still_has_is_not_deleted(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()

    def refuse(_when: str, order: Order) -> None:
        if isinstance(order, KeepTable):
            raise MillstreamError("COLUMN_COPY_FAILED", "The catalogue of tables fails by plan.")

    bench.hook = refuse
    bench.clock.advance_ms(1001 * HOUR_MS)
    old = _data_keys(bench)
    for _ in range(3):
        await bench.broker.columns.clean()
        await bench.broker.columns.copy_due()
        bench.clock.advance_ms(REMOVED_GRACE_MS + 1)
    assert _data_keys(bench) == old
    assert "fails by plan" in bench.broker.columns.status()[0].problem


async def test_files_that_are_gone_are_not_made_again_from_chunks_that_are_there(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    bench.clock.advance_ms(1001 * HOUR_MS)
    await bench.broker.columns.clean()
    await bench.copy()
    bench.clock.advance_ms(REMOVED_GRACE_MS + 1)
    await bench.broker.columns.clean()
    assert bench.broker.cold.map.rows
    for _ in range(2):
        await bench.copy()
        assert _data_keys(bench) == []
        await bench.crash()


async def test_a_new_topic_of_the_name_has_nothing_of_the_deleted_one(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    old = _data_keys(bench)
    bench.broker.topics.delete("t")
    await bench.upload()
    bench.sent.clear()
    bench.attributes = copy_attributes(ColumnAttributes("id STRING", "json"))
    bench.create()
    await bench.send(6)
    await bench.upload()
    await bench.copy()
    assert bench.places() == bench.wanted_places()
    assert bench.query("SELECT id FROM t ORDER BY 1") == [(str(n),) for n in range(6)]
    bench.clock.advance_ms(REMOVED_GRACE_MS + 1)
    await bench.broker.columns.clean()
    assert set(old).isdisjoint(_data_keys(bench))


async def test_a_topic_that_is_deleted_while_it_is_copied_leaves_nothing(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()

    def delete(when: str, order: Order) -> None:
        if when == "after" and isinstance(order, CopyMessages) and bench.broker.topics.find("t"):
            bench.broker.topics.delete("t")

    bench.hook = delete
    await bench.copy()
    bench.clock.advance_ms(REMOVED_GRACE_MS + 1)
    await bench.broker.columns.clean()
    assert bench.broker.columns.map.rows() == {}
    assert not [key for key in bench.objects.objects if key.startswith("columns/")]


async def test_a_table_that_was_lost_is_made_again_from_its_files(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    (bench.root / "tables.db").unlink()
    await bench.crash()
    await bench.copy()
    assert bench.places() == bench.wanted_places()


async def test_a_restored_broker_goes_on_with_the_table(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    # The manifest of the next upload knows of these files, and that upload of what was copied later.
    await bench.send(10)
    await bench.upload()
    await bench.copy()
    assert bench.places() == bench.wanted_places()
    await bench.close()
    bench.lives += 1
    restore_broker(bench.objects, bench.root / str(bench.lives), segment_bytes=SMALL.segment_bytes)
    await bench.open()
    await bench.copy()
    assert bench.places() == bench.wanted_places()
    await bench.send(10)
    await bench.upload()
    await bench.copy()
    assert bench.places() == bench.wanted_places()


async def test_a_restored_broker_that_lost_messages_takes_them_out_of_the_table(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    known = bench.wanted_places()
    kept = dict(bench.objects.objects)
    await bench.send(10)
    await bench.upload()
    await bench.copy()
    await bench.close()
    # The store's later manifests are gone, and with them what tells of the last messages.
    for key in [key for key in bench.objects.objects if "/manifest/" in key and key not in kept]:
        del bench.objects.objects[key]
    for key in [key for key in kept if "/manifest/" in key]:
        bench.objects.objects[key] = kept[key]
    bench.lives += 1
    restore_broker(bench.objects, bench.root / str(bench.lives), segment_bytes=SMALL.segment_bytes)
    await bench.open()
    await bench.copy()
    assert bench.places() == known


async def test_a_table_that_others_wrote_to_is_left_alone(bench: CopyBench) -> None:
    await bench.send(20)
    await bench.upload()
    await bench.copy()
    bench.broker.columns._work.worker._tables._catalog.load_table(("DefaultCluster", "t")).delete("id = 3")
    await bench.send(5)
    await bench.upload()
    with pytest.raises(AssertionError, match="was changed by another than Millstream"):
        await bench.copy()
    assert bench.broker.columns.map.copied_until("t") == bench.broker.cold.map.uploaded_log_offset
    assert len(bench.places()) == 19


async def test_old_snapshots_and_their_metadata_go(bench: CopyBench) -> None:
    for _ in range(4):
        await bench.send(5)
        await bench.upload()
        await bench.copy()
    before = len(bench.objects.objects)
    # The store's clock is not the broker's.
    bench.broker.columns._work.worker._tables.tidy("DefaultCluster", "t", 1 << 60)
    assert len(bench.objects.objects) < before
    assert bench.places() == bench.wanted_places()


async def test_damaged_messages_are_left_out_and_counted_and_others_are_copied(bench: CopyBench) -> None:
    await bench.send(20, queue_id=0)
    await bench.upload()
    first = min(key for key in bench.objects.objects if key.endswith(".msc"))
    chunk = bench.objects.objects[first]
    bench.objects.objects[first] = chunk[:30] + bytes([chunk[30] ^ 1]) + chunk[31:]
    await bench.copy()
    [status] = bench.broker.columns.status()
    assert status.lost > 0
    assert status.rows + status.lost == 20
    assert len(bench.places()) == status.rows
    assert bench.broker.columns.report().errors == 3


@pytest.mark.parametrize("place", [None, 0, 1, 2, 3])
async def test_a_table_has_each_message_once_while_its_messages_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int | None
) -> None:
    monkeypatch.setattr(cold_merges, "MERGE_INTERVAL_S", 0.0)
    monkeypatch.setattr(merge_plan, "MERGED_ROWS", 4)
    monkeypatch.setattr(merge_plan, "MERGE_AGE_MS", 0)
    bench = CopyBench(tmp_path)
    await bench.open()
    merges = 0
    for number in range(12):
        await bench.send(3)
        await bench.upload()
        if number in (3, 5, 10):
            bench.hook = CrashAt(place)
            with suppress(Crash):
                await bench.copy()
            if place is not None:
                await bench.crash()
        bench.clock.advance_ms(1000)
        while await bench.broker.cold.merge_due():
            merges += 1
    assert merges > 1
    await bench.copy()
    assert bench.places() == bench.wanted_places()
    await bench.close()


async def test_without_a_catalogue_there_are_files_alone(tmp_path: Path) -> None:
    bench = CopyBench(tmp_path, tables=False)
    await bench.open()
    await bench.send(10)
    await bench.upload()
    await bench.copy()
    bench.export()
    files = [str(bench.store / key) for key in _data_keys(bench)]
    assert bench.query("SELECT count(*) FROM t", files) == [(10,)]
    assert not [key for key in bench.objects.objects if "/metadata/" in key]
    await bench.close()


async def test_brokers_of_a_cluster_share_a_table(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, other = CopyBench(tmp_path / "a"), CopyBench(tmp_path / "a")
    other.name, other.objects, other.lives = "broker-b", one.objects, 100
    for bench in (one, other):
        await bench.open()
    for _ in range(2):
        for bench, count in ((one, 10), (other, 6)):
            await bench.send(count)
            await bench.upload()
            await bench.copy()
    assert one.query("SELECT _broker, count(*) FROM t GROUP BY 1 ORDER BY 1") == [("broker-a", 20), ("broker-b", 12)]
    for bench in (one, other):
        await bench.close()


def _data_keys(bench: CopyBench) -> list[str]:
    return sorted(key for key in bench.objects.objects if key.endswith(".parquet"))


def _declare(bench: CopyBench, columns: str) -> None:
    topic = bench.broker.topics.find("t")
    assert topic is not None
    attributes = copy_attributes(ColumnAttributes(columns, "json"))
    bench.broker.topics.update(replace(topic, attributes={**topic.attributes, **attributes}))


def _table_names(bench: CopyBench) -> list[str]:
    table = bench.broker.columns._work.worker._tables._catalog.load_table(("DefaultCluster", "t"))
    return [field.name for field in table.schema().fields]
