"""Topics as dimension tables: the last message of each key, looked at again when the topic goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import VersionStore
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.tables import PhysicalColumn, Table
from millstream.streams.plan.types import INT, STRING
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.lookups.loads import TableLoad
from millstream.streams.spark.lookups.lookup_table import LookupSpec
from millstream.streams.spark.lookups.reloads import RETRY_S, TableReloads
from millstream.streams.spark.lookups.topics import LatestRows
from servers import running_servers_in_thread

KEY = IndexKey.equal("name")
changes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.sampled_from(RowKind)), max_size=40)


@settings(deadline=None, max_examples=60)
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


@pytest.fixture
def nameserver(tmp_path: Path) -> Iterator[str]:
    with running_servers_in_thread(tmp_path / "data") as servers:
        yield servers.nameserver


def tell(client: BlockingClient, name: str, level: int | None) -> None:
    body = b"" if level is None else json.dumps({"name": name, "level": level}).encode()
    client.send(Message("levels", body or b"null", keys=(json.dumps({"name": name}, separators=(",", ":")),)))


def reloads_of(tmp_path: Path, nameserver: str) -> TableReloads:
    columns = (PhysicalColumn("name", STRING), PhysicalColumn("level", INT))
    options = {"connector": "upsert-rocketmq", "topic": "levels", "format": "json"}
    table = Table("levels", columns, {}, primary_key=("name",))
    spec = LookupSpec.of(table, options, ["name", "level"], ["name"])
    placed = JobTables(tmp_path / "pins", "job", nameserver, root=tmp_path).placed(spec)
    return TableReloads(TableLoad(placed, ("name", "level"), KEY), VersionStore(tmp_path / "store"))


def rows(reloads: TableReloads) -> dict[str, int]:
    head = reloads.store.current()
    assert head is not None
    table = DimensionTable.open(reloads.store.directory / "versions" / str(head.version))
    return {row["name"]: row["level"] for batch in table.scan() for row in batch.to_pylist()}


def test_a_topic_is_loaded_again_when_it_went_on(tmp_path: Path, nameserver: str) -> None:
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("levels", read_queues=1, write_queues=1))
        for name, level in (("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", None)):
            tell(client, name, level)
        reloads = reloads_of(tmp_path, nameserver)
        reloads.first()
        assert rows(reloads) == {"a": 3, "c": 4}
        assert not reloads.look()
        tell(client, "c", 5)
        assert reloads.look()
        assert rows(reloads) == {"a": 3, "c": 5}


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
