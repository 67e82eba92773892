"""`millstream tiered`, against a broker with a directory as its object store."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from commands import Ran, run

from millstream.broker import cold_tier, column_copies
from millstream.broker.broker import Broker
from millstream.broker.cold_tier import ColdTier
from millstream.model.errors import MillstreamError
from millstream.model.topic import ColumnAttributes, TopicConfig, copy_attributes
from millstream.server.configuration.roles import BrokerConfiguration, NameserverConfiguration, Tiered, Tls
from millstream.server.separate import SeparateRole
from millstream.tiered.verification import ORPHAN_MS

pytestmark = pytest.mark.process

_OFF = Tls("off")


class Servers:
    """A nameserver and a broker in this event loop."""

    def __init__(self, directory: Path, nameserver: str, broker: SeparateRole) -> None:
        self.objects = directory / "objects"
        self._nameserver = nameserver
        self._broker = broker

    async def run(self, *words: str) -> Ran:
        return await asyncio.to_thread(run, *words, "--nameserver", self._nameserver)

    async def rows(self, *words: str) -> list[dict[str, Any]]:
        ran = await self.run(*words, "-o", "json")
        found: list[dict[str, Any]] = json.loads(ran.out)
        return found

    @property
    def broker(self) -> Broker:
        assert self._broker.broker_role is not None
        return self._broker.broker_role.broker

    @property
    def cold(self) -> ColdTier:
        return self.broker.cold

    async def fill(self) -> None:
        """Ten messages, all of them uploaded."""
        assert (await self.run("topic", "create", "orders", "--queues", "1")).code == 0
        for number in range(10):
            assert (await self.run("produce", "orders", f"message {number}")).code == 0
        await self.upload()

    async def upload(self) -> None:
        """Bring all up."""
        self.broker.maintenance.store.flush()
        self.cold._uploaded_s = -1e9
        await self.cold.upload_due()


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Servers]:
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    nameserver = SeparateRole(NameserverConfiguration(port=0, directory=str(tmp_path / "nameserver"), tls=_OFF))
    place = (await nameserver.start())["nameserver"]
    address = f"{place.host}:{place.port}"
    broker = SeparateRole(
        BrokerConfiguration(
            port=0, directory=str(tmp_path / "broker"), nameservers=(address,), tls=_OFF,
            tiered=Tiered(url=f"file://{tmp_path}/objects", catalog=f"sqlite:///{tmp_path}/tables.db"),
        )
    )  # fmt: skip
    await broker.start()
    yield Servers(tmp_path, address, broker)
    await broker.close()
    await nameserver.close()


async def test_status_and_verify_tell_what_is_in_the_store_and_whether_it_is_whole(servers: Servers) -> None:
    await servers.fill()
    [row] = await servers.rows("tiered", "status", "broker-a")
    assert (row["topic"], row["first_offset"], row["last_offset"], row["behind_messages"]) == ("orders", 0, 9, 0)
    whole = await servers.run("tiered", "verify", "broker-a")
    assert whole.code == 0
    assert "1 of 1 objects" in whole.err
    assert (await servers.run("tiered", "verify", "broker-a", "--sample", "1")).code == 0
    [(_, one)] = servers.cold.map.objects
    path = servers.objects / one.key
    path.write_bytes(path.read_bytes()[:-1])
    damaged = await servers.run("tiered", "verify", "broker-a")
    assert damaged.code == 1
    assert one.key in damaged.out


async def test_a_topic_with_columns_is_copied_and_shown(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    words = ("topic", "create", "orders", "--queues", "1", "--columns", "id BIGINT, price DECIMAL(10, 2)")
    assert (await servers.run(*words)).code == 0
    for body in ('{"id": 1, "price": "2.50"}', "none"):
        assert (await servers.run("produce", "orders", body)).code == 0
    await servers.upload()
    copies = servers.broker.columns
    while await copies.copy_due():
        pass
    shown = await servers.run("tiered", "status", "broker-a", "-o", "table")
    assert shown.code == 0
    assert "Copy of orders: 2 rows in 1 Parquet files" in shown.out
    assert "1 rows have bodies that do not fit" in shown.out
    described = await servers.run("topic", "describe", "orders", "-o", "table")
    assert "Copied as a table: id BIGINT, price DECIMAL(10, 2) (json)" in described.out
    assert "broker-a: 2 rows in 1 Parquet files" in described.out
    wrong = await servers.run("topic", "update", "orders", "--columns", "id BIGINT, id INT")
    assert wrong.code == 1
    assert "MS-4045" in wrong.err
    nothing = await servers.run("topic", "update", "orders")
    assert "Give --queues or --columns" in nothing.err


async def test_verify_and_gc_look_at_the_files_of_tables(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    words = ("topic", "create", "orders", "--queues", "1", "--columns", "id BIGINT")
    assert (await servers.run(*words)).code == 0
    assert (await servers.run("produce", "orders", '{"id": 1}')).code == 0
    await servers.upload()
    copies = servers.broker.columns
    while await copies.copy_due():
        pass
    whole = await servers.run("tiered", "verify", "broker-a")
    assert "2 of 2 objects" in whole.err
    [key] = copies.map.present("orders")
    path = servers.objects / key
    orphan = path.with_name(path.name.replace("0-", "7-", 1))
    orphan.write_bytes(path.read_bytes())
    old_s = time.time() - ORPHAN_MS / 1000 - 60
    for one in (path, orphan):
        os.utime(one, (old_s, old_s))
    [row] = await servers.rows("tiered", "gc", "broker-a", "--dry-run")
    assert (row["object"], row["state"]) == (str(orphan.relative_to(servers.objects)), "found")
    [row] = await servers.rows("tiered", "gc", "broker-a")
    assert row["state"] == "deleted"
    assert (path.exists(), orphan.exists()) == (True, False)
    path.unlink()
    damaged = await servers.run("tiered", "verify", "broker-a")
    assert damaged.code == 1
    assert key in damaged.out


async def test_columns_that_the_files_do_not_fit_are_refused_before_anything_is_changed(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    columns = "id BIGINT, price DECIMAL(10, 2)"
    assert (await servers.run("topic", "create", "orders", "--queues", "1", "--columns", columns)).code == 0
    await servers.broker.columns.copy_due()
    for other, why, remedy in (
        (
            "id BIGINT, price STRING",
            "the column price was DECIMAL(10, 2) and is STRING now",
            "Declare price as DECIMAL",
        ),
        ("id BIGINT", "the column price is left out, which the files have", "Declare price as well"),
    ):
        refused = await servers.run("topic", "update", "orders", "--queues", "2", "--columns", other)
        assert refused.code == 1
        assert "MS-4045" in refused.err
        assert why in refused.err
        assert remedy in refused.err
        topic = servers.broker.topics.find("orders")
        assert topic is not None
        assert (topic.queues, topic.column_copy) == (1, ColumnAttributes(columns, "json"))
    assert (await servers.run("topic", "update", "orders", "--columns", f"{columns}, city STRING")).code == 0
    # Tools that know nothing of types are refused by the broker itself.
    with pytest.raises(MillstreamError, match="the column id was BIGINT and is STRING now"):
        declare(servers, "id STRING", "json")
    # What it cannot tell without extras the copy tells, which goes on as it was.
    declare(servers, f"{columns}, city STRING", "raw")
    await servers.broker.columns.copy_due()
    shown = await servers.run("tiered", "status", "broker-a", "-o", "table")
    assert shown.code == 1
    assert "a raw body is one column, not 3" in shown.out


def declare(servers: Servers, columns: str, body_format: str) -> None:
    attributes = copy_attributes(ColumnAttributes(columns, body_format))
    servers.broker.topics.update(TopicConfig("orders", read_queues=1, write_queues=1, attributes=attributes))


async def test_a_broker_is_restored_to_a_new_directory_and_nowhere_else(servers: Servers, tmp_path: Path) -> None:
    await servers.fill()
    place = ("broker", "restore", "--from", f"file://{servers.objects}", "--dir", str(tmp_path / "new"))
    done = await asyncio.to_thread(run, *place, "-o", "json")
    assert done.code == 0
    assert json.loads(done.out)["broker"] == "broker-a"
    again = await asyncio.to_thread(run, *place)
    assert again.code != 0
    assert "MS-4037" in again.err
    other = await asyncio.to_thread(run, *place[:-1], str(tmp_path / "other"), "--broker", "broker-x")
    assert "nothing of the broker 'broker-x'" in other.err


async def test_gc_shows_and_deletes_objects_that_no_row_names(servers: Servers) -> None:
    await servers.fill()
    [(name, one)] = servers.cold.map.objects
    orphan = servers.objects / f"{name}-lost" / "00000.msc"
    orphan.parent.mkdir()
    orphan.write_bytes(b"lost")
    assert await servers.rows("tiered", "gc", "broker-a") == []
    old_s = time.time() - ORPHAN_MS / 1000 - 60
    os.utime(orphan, (old_s, old_s))
    os.utime(servers.objects / one.key, (old_s, old_s))
    [row] = await servers.rows("tiered", "gc", "broker-a", "--dry-run")
    assert (row["object"], row["state"]) == (f"{name}-lost/00000.msc", "found")
    assert orphan.exists()
    [row] = await servers.rows("tiered", "gc", "broker-a")
    assert row["state"] == "deleted"
    assert not orphan.exists()
    assert (servers.objects / one.key).exists()
