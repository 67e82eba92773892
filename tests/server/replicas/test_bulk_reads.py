"""Bulk readers and sources of stream jobs at replicas, while masters come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from local_set import NAME, LocalSet

from millstream.client.bulk.puller import BulkPuller
from millstream.client.client import Client
from millstream.client.replica_reads import ReadFrom
from millstream.client.values import QueueAddress
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.replicas.replica_handlers import ReplicaTable
from millstream.server.replicas.replicated_broker import ReplicaRole
from millstream.transport.remoting_connection import Connection
from patience import eventually

MakeSet = Callable[..., LocalSet]
QUEUE = f"{NAME}/0"


@pytest.fixture
async def replica_set(tmp_path: Path) -> AsyncIterator[MakeSet]:
    made: list[LocalSet] = []

    def make(**settings: Any) -> LocalSet:
        made.append(LocalSet(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def start(found: LocalSet, *names: str, messages: int = 200) -> list[bytes]:
    """A set that lists its replicas, and a topic with so many messages that all of them show."""
    await found.start(*names)
    await found.make_topic()
    bodies = [b"%d" % number for number in range(messages)]
    await found.send(*bodies)
    assert found.nameserver.nameserver_role is not None
    registry = found.nameserver.nameserver_role.registry
    await eventually(lambda: len(registry.members(NAME)) == len(names))
    end = found[names[0]].store.written_log_offset
    for name in names[1:]:
        await eventually(lambda: found[name].broker.topics.find("orders") is not None)  # noqa: B023 - awaited here
        await eventually(lambda: found[name].store.visible_log_offset >= end)  # noqa: B023
    return bodies


def silence(found: LocalSet, name: str) -> None:
    """Have a master answer nobody but its replicas, as if its process were stopped for its clients alone."""
    role = found._roles[name].broker_role
    assert role is not None
    fetch = role.server.handlers[RequestCode.FETCH_LOG]

    async def stay_silent(_command: RemotingCommand, _connection: Connection) -> RemotingCommand | None:
        await asyncio.Event().wait()
        return None

    role.server.handlers = ReplicaTable({RequestCode.FETCH_LOG: fetch}, stay_silent)


def bodies_in(table: Any) -> list[bytes]:
    return table.column("body").to_pylist()


async def test_a_bulk_reader_reads_from_a_replica_alone(replica_set: MakeSet) -> None:
    found = replica_set()
    bodies = await start(found, "a", "b")
    async with Client(found.addresses["nameserver"]) as client:
        [queue] = await client.queues("orders")
        silence(found, "a")
        puller = BulkPuller(client, read_from=ReadFrom.REPLICA)
        got = [
            body
            async for batch in puller.read(queue, 0, len(bodies), max_bytes=2000)
            for body in bodies_in(batch.table)
        ]
    assert got == bodies
    assert found["b"].reads.requests > 5


async def test_a_bulk_reader_goes_on_at_the_next_master_without_a_gap(replica_set: MakeSet) -> None:
    """In the middle of its reading the master stops, and the replica that it reads from is elected."""
    found = replica_set()
    bodies = await start(found, "a", "b", "c")
    got: list[tuple[int, bytes]] = []
    async with Client(found.addresses["nameserver"], timeout_s=20) as client:
        [queue] = await client.queues("orders")
        puller = BulkPuller(client, read_from=ReadFrom.REPLICA)
        offset = 0
        while offset < len(bodies):
            offset = await _read_once(puller, queue, offset, got)
            if offset > len(bodies) // 2 and "a" in found._roles:
                await found.stop("a")
                await found.settle(2)
                [master] = [name for name in "bc" if found[name].role is ReplicaRole.MASTER]
                await found.send(b"after")
        bodies.append(b"after")
        while offset < len(bodies):
            offset = await _read_once(puller, queue, offset, got)
    assert master in "bc"
    assert [one for one, _ in got] == list(range(len(bodies)))
    assert [body for _, body in got] == bodies


async def _read_once(puller: BulkPuller, queue: QueueAddress, offset: int, got: list[tuple[int, bytes]]) -> int:
    batch = await puller.fetch(queue, offset, max_bytes=1500)
    offsets = batch.table.column("queue_offset").to_pylist()
    got += zip(offsets, bodies_in(batch.table), strict=True)
    return batch.next_offset


async def test_a_reader_of_a_replica_that_lags_gets_the_rest_from_the_master(
    replica_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replica_set()
    bodies = await start(found, "a", "b", messages=50)
    # It has what follows, and does not show it.
    monkeypatch.setattr(found["b"].store, "confirm", lambda _: None)
    await found.send(b"later")
    async with Client(found.addresses["nameserver"]) as client:
        [queue] = await client.queues("orders")
        puller = BulkPuller(client, read_from=ReadFrom.REPLICA)
        end = len(bodies) + 1
        got = [body async for batch in puller.read(queue, 0, end) for body in bodies_in(batch.table)]
    assert got == [*bodies, b"later"]
    assert found["b"].reads.requests > 0


async def test_a_replica_that_is_killed_costs_a_reader_nothing(replica_set: MakeSet) -> None:
    found = replica_set()
    bodies = await start(found, "a", "b")
    async with Client(found.addresses["nameserver"]) as client:
        [queue] = await client.queues("orders")
        puller = BulkPuller(client, read_from=ReadFrom.REPLICA)
        first = await puller.fetch(queue, 0, max_bytes=1500)
        await found.stop("b")
        rest = puller.read(queue, first.next_offset, len(bodies))
        got = bodies_in(first.table) + [body async for batch in rest for body in bodies_in(batch.table)]
    assert got == bodies


async def test_a_source_of_a_job_reads_from_a_replica_while_the_master_is_silent(replica_set: MakeSet) -> None:
    pytest.importorskip("pyspark", reason="needs the extra streams")
    from millstream.streams.connectors.rocketmq.reader import TopicSpec, TopicStreamReader, read_partition
    from millstream.streams.plan.types import BIGINT, STRING
    from millstream.streams.spark.source.formats.body_format import BodyFormat
    from millstream.streams.spark.source.position import Position
    from millstream.streams.spark.source.spec import SourceColumn

    found = replica_set()
    bodies = await start(found, "a", "b")
    columns = (SourceColumn("text", STRING), SourceColumn("at", BIGINT, "queue-offset"))
    start_position = Position({QUEUE: 0}, name="orders")
    spec = TopicSpec(
        nameserver=found.addresses["nameserver"], topic="orders", columns=columns, start=start_position,
        body=BodyFormat("raw"), timeout_s=2.0, read_from="replica",
    )  # fmt: skip
    silence(found, "a")

    def read() -> list[tuple[str, int]]:
        reader = TopicStreamReader(spec)
        try:
            begin = reader.initialOffset()
            end = reader.latestOffset(begin, reader.getDefaultReadLimit())
            rows = []
            for partition in reader.partitions(begin, end):
                for batch in read_partition(spec, partition):
                    rows += [(row["text"], row["at"]) for row in batch.to_pylist()]
            return rows
        finally:
            reader.stop()

    rows = await asyncio.to_thread(read)
    assert sorted(rows, key=lambda row: row[1]) == [(body.decode(), number) for number, body in enumerate(bodies)]
    assert found["b"].reads.requests > 0
