"""Copies of cold topics in a set: the next master goes on where the last one was, and no message is copied twice."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crash.faulty_objects import FaultyObjects
from local_set import LocalSet

from inline_columns import Crash, InlineWork
from millstream.broker import cold_tier, column_copies
from millstream.model.topic import ColumnAttributes, copy_attributes
from millstream.server import broker_role
from millstream.server.columns.orders import CopyMessages, Order
from millstream.server.columns.worker import ColumnWorker
from millstream.server.configuration.roles import Tiered
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.store.message_store import StoreOptions
from millstream.tiered.cold_work import WorkHere
from millstream.tiered.places import ObjectPlace
from patience import eventually

BODIES = [b'{"id": %d}' % number for number in range(60)]


class CopyingSet(LocalSet):
    """A set whose replicas have an object store, where they copy to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.objects = FaultyObjects()
        self.crashes = False

    async def add(self, directory: str, /, **changes: object) -> ReplicatedBroker:
        return await super().add(directory, tiered=Tiered(url="file:///nowhere", keep_hours=1000), **changes)

    def make_work(self, _options: object) -> InlineWork:
        worker = ColumnWorker(lambda: self.objects, "file:///nowhere")
        return InlineWork(worker, self.obey, tables=False)

    def obey(self, when: str, order: Order) -> None:
        if self.crashes and when == "after" and isinstance(order, CopyMessages):
            raise Crash

    def rows(self, replicated: ReplicatedBroker) -> list[tuple[int, int]]:
        """Queue offset and id of each row that the files of the broker's state have."""
        keys = replicated.broker.columns.map.present("orders")
        tables = [pq.read_table(io.BytesIO(self.objects.objects[key])) for key in keys]
        return sorted((row["_queue_offset"], row["id"]) for table in tables for row in table.to_pylist())


@pytest.fixture
async def replica_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CopyingSet]:
    made = CopyingSet(tmp_path)
    monkeypatch.setattr(ObjectPlace, "open", lambda _: made.objects)
    monkeypatch.setattr(cold_tier, "ColdProcess", lambda _place, _loop: WorkHere(made.objects))
    monkeypatch.setattr(broker_role, "ColumnProcess", made.make_work)
    monkeypatch.setattr(broker_role, "StoreOptions", partial(StoreOptions, segment_bytes=64 * 1024))
    for module, names in (
        (cold_tier, ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S")),
        (column_copies, ("COPY_INTERVAL_S", "CLEAN_INTERVAL_S")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 1e6)
    yield made
    await made.close()


async def upload(replicated: ReplicatedBroker) -> None:
    replicated.store.flush()
    replicated.broker.cold._uploaded_s = -1e9
    await replicated.broker.cold.upload_due()


async def copy(replicated: ReplicatedBroker) -> None:
    while await replicated.broker.columns.copy_due():
        pass


async def test_a_failover_between_a_file_and_its_row_neither_loses_nor_doubles_a_message(
    replica_set: CopyingSet,
) -> None:
    found = replica_set
    await found.start("a", "b")
    await found.make_topic()
    topics = found["a"].broker.topics
    topic = topics.find("orders")
    assert topic is not None
    topics.update(replace(topic, attributes=copy_attributes(ColumnAttributes("id BIGINT", "json"))))
    await found.send(*BODIES[:30])
    await upload(found["a"])
    await copy(found["a"])
    await found.send(*BODIES[30:])
    await upload(found["a"])
    found.crashes = True
    with pytest.raises(Crash):
        await found["a"].broker.columns.copy_due()
    found.crashes = False
    files = {key for key in found.objects.objects if key.endswith(".parquet")}
    assert len(files) == 2
    await eventually(lambda: found["b"].broker.columns.map.rows() == found["a"].broker.columns.map.rows())
    await found.stop("a")
    await eventually(lambda: found["b"].role is ReplicaRole.MASTER)
    await found.settle(len(found._roles))
    await copy(found["b"])
    assert files == {key for key in found.objects.objects if key.endswith(".parquet")}
    assert [number for _, number in found.rows(found["b"])] == [*range(60)]
