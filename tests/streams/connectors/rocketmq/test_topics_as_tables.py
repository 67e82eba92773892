"""Topics as dimension tables: the last message of each key, read on when the topic goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.connectors.rocketmq.lookup import LatestRows
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.overlay import OverlaidTable, open_version
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import ReloadRequest, VersionStore
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.joins import JoinKind, LookupJoin
from millstream.streams.plan.nodes import Scan
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING
from millstream.streams.spark.lookups.dimension_form import dimension_load, is_dimension
from millstream.streams.spark.lookups.job_tables import RETRY_S, JobTables, TableReloads
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from servers import running_servers_in_thread

KEY = IndexKey.equal("name")
changes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.sampled_from(RowKind)), max_size=40)


@settings(deadline=None, max_examples=scaled(60))
@given(batches=st.lists(changes, max_size=5), slack=st.integers(0, 5))
def test_the_last_row_of_each_key_is_what_a_dict_holds(batches: list[list[Any]], slack: int) -> None:
    latest, kept = LatestRows(1, slack=slack), dict[int, int]()
    for several in batches:
        keys, values, kinds = ([one[place] for one in several] for place in range(3))
        batch = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], ["k", "v"])
        latest.add(batch, pa.array([kind.value for kind in kinds], pa.int8()))
        for key, value, kind in several:
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                kept[key] = value
            else:
                kept.pop(key, None)
    found = [tuple(row.values()) for batch in latest.batches() for row in batch.to_pylist()]
    assert sorted(found) == sorted(kept.items())
    assert len(latest) == len(kept)


@settings(deadline=None, max_examples=scaled(40))
@given(batches=st.lists(changes, max_size=5), slack=st.integers(0, 5))
def test_the_keys_of_all_changes_are_kept_where_deleted_ones_are(batches: list[list[Any]], slack: int) -> None:
    latest = LatestRows(1, keeps_gone=True, slack=slack)
    for several in batches:
        keys, values, kinds = ([one[place] for one in several] for place in range(3))
        batch = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], ["k", "v"])
        latest.add(batch, pa.array([kind.value for kind in kinds], pa.int8()))
    found = [row for batch in latest.changed_keys() for row in batch.to_pylist()]
    assert sorted(row["k"] for row in found) == sorted({key for several in batches for key, _, _ in several})
    assert all(list(row) == ["k"] for row in found)


def test_a_row_whose_key_is_null_is_none() -> None:
    latest = LatestRows(1, keeps_gone=True)
    batch = pa.RecordBatch.from_arrays([pa.array([None, 1]), pa.array([2, 3])], ["k", "v"])
    latest.add(batch, pa.array([RowKind.INSERT.value, RowKind.INSERT.value], pa.int8()))
    assert [batch.to_pylist() for batch in latest.batches()] == [[{"k": 1, "v": 3}]]


@pytest.fixture
def nameserver(tmp_path: Path) -> Iterator[str]:
    with running_servers_in_thread(tmp_path / "data") as servers:
        yield servers.nameserver


def tell(client: BlockingClient, name: str, level: int | None) -> None:
    body = b"" if level is None else json.dumps({"name": name, "level": level}).encode()
    client.send(Message("levels", body or b"null", keys=(json.dumps({"name": name}, separators=(",", ":")),)))


def reloads_of(tmp_path: Path, nameserver: str, filters: tuple[Call, ...] = ()) -> TableReloads:
    columns = (PhysicalColumn("name", STRING), PhysicalColumn("level", INT))
    options = {"connector": "upsert-rocketmq", "topic": "levels", "format": "json"}
    table = Table("levels", columns, {}, primary_key=("name",))
    spec = LookupSpec.of(table, options, ["name", "level"], ["name"])
    placed = JobTables(tmp_path / "pins", "job", nameserver, root=tmp_path).with_address(spec)
    return TableReloads(TableLoad(placed, ("name", "level"), KEY, filters), VersionStore(tmp_path / "store"))


def opened(reloads: TableReloads) -> DimensionTable | OverlaidTable:
    head = reloads.store.current()
    assert head is not None
    return open_version(reloads.store.directory_of(head.version), check=True)


def rows(reloads: TableReloads) -> dict[str, int]:
    return {row["name"]: row["level"] for batch in opened(reloads).scan() for row in batch.to_pylist()}


def test_a_topic_is_read_on_when_it_went_on(tmp_path: Path, nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
        for name, level in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None)):
            tell(client, name, level)
        reloads = reloads_of(tmp_path, nameserver)
        reloads.first()
        assert rows(reloads) == {"a": 3, "c": 4}
        assert isinstance(opened(reloads), DimensionTable)
        assert not reloads.look()
        tell(client, "c", 5)
        tell(client, "d", 6)
        assert reloads.look()
        tell(client, "a", None)
        # Another job that begins reads on as well.
        reloads_of(tmp_path, nameserver).first()
        assert rows(reloads) == {"c": 5, "d": 6}
        head, before = reloads.store.current(), reloads.store.head(1)
        assert head is not None
        assert before is not None
        assert (head.version, head.ends) == (3, {next(iter(head.ends)): 8})
        # Of the table below "a" and "c" are hidden; "c" and "d" are above it.
        assert (head.rows, head.changed, head.read_until_ms) == (2, 4, before.time_ms)
        assert isinstance(opened(reloads), OverlaidTable)
        assert not reloads.look()
        assert {
            row["name"] for batch in open_version(reloads.store.directory_of(1)).scan() for row in batch.to_pylist()
        } == {"a", "c"}


def test_a_topic_is_read_whole_where_someone_wants_that_or_its_messages_are_others(tmp_path: Path) -> None:
    with running_servers_in_thread(tmp_path / "data") as servers, BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
        for level in range(3):
            tell(client, "a", level)
        reloads = reloads_of(tmp_path, servers.nameserver)
        reloads.first()
        tell(client, "b", 7)
        ReloadRequest(reloads.store.directory).request(2**53)
        assert reloads.look()
        assert isinstance(opened(reloads), DimensionTable)
        assert rows(reloads) == {"a": 2, "b": 7}
        (reloads.store.directory / "reload").unlink()
        load = reloads.load
    # A topic of that name that ends before what was read of the one before.
    with running_servers_in_thread(tmp_path / "other") as servers, BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
        tell(client, "c", 9)
        again = TableReloads(reloads_of(tmp_path, servers.nameserver).load, VersionStore(reloads.store.directory))
        assert again.load.identity != load.identity
        assert again.look()
        assert isinstance(opened(again), DimensionTable)
        assert rows(again) == {"c": 9}


def test_a_condition_of_the_load_holds_for_changes_too(tmp_path: Path, nameserver: str) -> None:
    high = Call(">=", (Column("level", INT), Literal(5, INT)), BOOLEAN)
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
        for name, level in (("a", 5), ("b", 6), ("c", 4)):
            tell(client, name, level)
        reloads = reloads_of(tmp_path, nameserver, (high,))
        reloads.first()
        assert rows(reloads) == {"a": 5, "b": 6}
        for name, level in (("a", 3), ("c", 8)):
            tell(client, name, level)
        assert reloads.look()
        assert rows(reloads) == {"b": 6, "c": 8}


def test_a_cluster_that_is_away_leaves_the_version_that_is_there(tmp_path: Path) -> None:
    now_ms = [1_700_000_000_000]
    with running_servers_in_thread(tmp_path / "data") as servers:
        with BlockingClient(servers.nameserver) as client:
            client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
            tell(client, "a", 1)
        reloads = reloads_of(tmp_path, servers.nameserver)
        reloads.first()
        load = reloads.load
    again = TableReloads(load, reloads.store, clock_ms=lambda: now_ms[0])
    again.first()
    assert not again.look()
    trouble = again.trouble()
    assert trouble is not None
    assert "levels is not loaded again; version 1" in trouble
    assert rows(again) == {"a": 1}
    now_ms[0] += int(RETRY_S * 1000)
    assert not again.look()


def things_of(tmp_path: Path, nameserver: str, clock: list[int], more: dict[str, str]) -> TableReloads:
    """A table of a database with a topic of changes, found by its level as a job's join would say it."""
    columns = (PhysicalColumn("id", BIGINT), PhysicalColumn("name", STRING), PhysicalColumn("level", INT))
    options = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path / 't.db'}", "table-name": "things", **more}
    table = Table("things", columns, options, primary_key=("id",))
    source = Scan(Table("events", (PhysicalColumn("e", INT),), {"connector": "rocketmq", "topic": "events"}), ("e",))
    node = LookupJoin(source, table, JoinKind.INNER, (("e", "level"),), (("name", "name"),), None)
    tables = JobTables(tmp_path / "pins", "job", nameserver, root=tmp_path)
    spec = tables.with_address(LookupSpec.of(table, options, ["level", "name"], ["level"]))
    assert is_dimension(node, spec)
    load = dimension_load(node, spec, ())
    return TableReloads(load, VersionStore(tmp_path / "store", clock_ms=lambda: clock[0]), clock_ms=lambda: clock[0])


def put(tmp_path: Path, *rows: tuple[int, str, int]) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY, name TEXT, level INTEGER)")
        connection.executemany("INSERT OR REPLACE INTO things VALUES (?, ?, ?)", rows)


def by_level(reloads: TableReloads, *levels: int) -> list[str]:
    table = opened(reloads)
    found = table.find(IndexKey.equal("level"), [pa.array(levels, pa.int32())])
    return sorted(table.take(found.row, ["name"]).column(0).to_pylist())


def test_changes_of_a_database_reach_its_table_between_two_loads(tmp_path: Path, nameserver: str) -> None:
    clock = [1_700_000_000_000]
    every = {"lookup.changes.topic": "changes", "lookup.full-cache.periodic-reload.interval": "60 s"}
    put(tmp_path, (1, "one", 5), (2, "two", 5), (3, "three", 6))
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("changes", read_queues=1, write_queues=1))
        tell_row(client, {"id": 9, "name": "before the load", "level": 5})
        reloads = things_of(tmp_path, nameserver, clock, every)
        reloads.first()
        assert by_level(reloads, 5, 6) == ["one", "three", "two"]
        tell_row(client, {"id": 2, "name": "zwei", "level": 6})
        tell_row(client, {"id": 4, "name": "four", "level": 5})
        tell_row(client, {"id": 3})
        clock[0] += 40_000
        assert reloads.look()
        assert by_level(reloads, 5) == ["four", "one"]
        assert by_level(reloads, 6) == ["zwei"]
        # The interval counts from the load of the whole, not from the changes.
        put(tmp_path, (5, "five", 7))
        clock[0] += 19_999
        assert not reloads.look()
        clock[0] += 1
        assert reloads.look()
        assert by_level(reloads, 5, 6, 7) == ["five", "one", "three", "two"]
        assert reloads.schedule == "by the changes in changes, looked at every 10 s, and whole every 60 s"


def tell_row(client: BlockingClient, row: dict[str, Any]) -> None:
    """An upsert; a row of nothing but its key is a delete."""
    body = json.dumps(row).encode() if len(row) > 1 else b"null"
    client.send(Message("changes", body, keys=(json.dumps({"id": row["id"]}, separators=(",", ":")),)))


def test_the_envelopes_of_debezium_change_a_table(tmp_path: Path, nameserver: str) -> None:
    put(tmp_path, (1, "one", 5), (2, "two", 5))
    said = {"lookup.changes.topic": "changes", "lookup.changes.format": "debezium-json"}
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("changes", read_queues=1, write_queues=1))
        reloads = things_of(tmp_path, nameserver, [1_700_000_000_000], said)
        reloads.first()
        one, two, six = ({"id": id, "name": name, "level": 5} for id, name in ((1, "one"), (2, "two"), (6, "six")))
        for before, after, operation in ((one, None, "d"), (two, {**two, "name": "zwei"}, "u"), (None, six, "c")):
            client.send(Message("changes", json.dumps({"before": before, "after": after, "op": operation}).encode()))
        assert reloads.look()
        assert by_level(reloads, 5) == ["six", "zwei"]
