"""Places of messages that lie in the object store alone: by a time, for groups that go or begin there, and by a log
offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from broker_bench import Bench, bodies
from crash.faulty_objects import FaultyObjects, ObjectFault
from test_cold_tier import body_of, cold_bench, make_cold

from cold_topics import cold_servers
from millstream.broker.pop import popper
from millstream.broker.queues.reads import ReplicaQueues
from millstream.client.blocking import BlockingClient
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.model.group import FirstPosition, GroupConfig
from millstream.model.logic_queue import MappingItem
from millstream.model.message import OutgoingMessage
from millstream.model.operations import QueuePoint, ResetRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, offset_message_id
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

COUNT = 300
WANTED = 17
"""The message that the tests look for, far from the border and from the beginning of a block's range."""


@dataclass
class Border:
    """Messages a second apart, the first ones in the object store alone."""

    bench: Bench
    times: list[int]
    log_offsets: list[int]
    first_local: int

    def reset(self, stored_ms: int, group: str = "g") -> ResetRequest:
        return ResetRequest(group, "t", QueuePoint.TIME, stored_ms)


@asynccontextmanager
async def border(directory: Path, objects: FaultyObjects) -> AsyncIterator[Border]:
    async with cold_bench(directory, objects, ManualClock()) as bench:
        times, log_offsets = [], []
        for number in range(COUNT):
            times.append(bench.clock.now_ms())
            [receipt] = await bench.send(f"{number} {'x' * 60}")
            log_offsets.append(receipt.log_offset)
            bench.clock.advance_ms(1000)
        first_local = await make_cold(bench)
        assert WANTED < first_local < COUNT
        yield Border(bench, times, log_offsets, first_local)


@pytest.fixture
def objects() -> FaultyObjects:
    return FaultyObjects()


async def reset(border: Border, request: ResetRequest) -> list[int]:
    done = border.bench.broker.queues.reset(request)
    return [one.after for one in (done if isinstance(done, list) else await done)]


async def test_a_reset_to_a_time_puts_the_group_to_a_cold_message(tmp_path: Path, objects: FaultyObjects) -> None:
    async with border(tmp_path, objects) as there:
        bench = there.bench
        bench.broker.groups.create(GroupConfig("g"))
        for number in (WANTED, there.first_local - 1, there.first_local, COUNT - 1, 0):
            assert (await reset(there, there.reset(there.times[number] - 500)))[0] == number
        assert (await reset(there, there.reset(there.times[WANTED])))[0] == WANTED
        [popped] = await bench.pop(max_messages=1, queue_id=0)
        assert popped.message.body.decode().startswith(f"{WANTED} ")


async def test_a_reset_that_cannot_ask_the_store_is_refused_and_changes_nothing(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with border(tmp_path, objects) as there:
        bench = there.bench
        bench.broker.groups.create(GroupConfig("g"))
        bench.broker.queues.commit("g", "t", 0, 200)
        objects.plan.extend([ObjectFault.BEFORE] * 4)
        with pytest.raises(MillstreamError, match="does not answer"):
            await reset(there, there.reset(there.times[WANTED]))
        objects.plan.clear()
        assert bench.broker.queues.own_offset("g", "t", 0) == 200


async def test_a_group_that_begins_at_a_time_begins_at_a_cold_message(tmp_path: Path, objects: FaultyObjects) -> None:
    async with border(tmp_path, objects) as there:
        bench = there.bench
        for name in ("pops", "pulls", "looks"):
            bench.broker.groups.create(
                GroupConfig(name, first_position=FirstPosition.TIME, first_time_ms=there.times[WANTED] - 500)
            )
        found = bodies(await bench.pop("pops", max_messages=3))
        assert [body.split()[0] for body in found] == [str(WANTED + number) for number in range(3)]
        first = bench.broker.queues.committed_or_first("pulls", "t", 0)
        assert first is not None
        assert not isinstance(first, int)
        assert await first == WANTED
        assert bench.broker.queues.own_offset("pulls", "t", 0) == WANTED
        # Who only looks does not ask the store: it is told where the object begins at the latest.
        [progress] = [one for one in bench.broker.queues.own_progress("looks", "t") if one.queue_id == 0]
        assert progress.committed <= WANTED


async def test_a_group_that_cannot_ask_where_it_begins_waits_and_begins_there_later(
    tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popper, "AWAY_PAUSE_S", 0.01)
    async with border(tmp_path, objects) as there:
        bench = there.bench
        bench.broker.groups.create(
            GroupConfig("pops", first_position=FirstPosition.TIME, first_time_ms=there.times[WANTED])
        )
        objects.plan.extend([ObjectFault.BEFORE] * 4)
        assert await bench.pop("pops", max_messages=1) == []
        objects.plan.clear()
        both = await asyncio.gather(*(bench.pop("pops", max_messages=1) for _ in range(2)))
        assert sorted(bodies([*both[0], *both[1]])) == [f"{n} {'x' * 60}" for n in (WANTED, WANTED + 1)]


async def test_queues_of_static_topics_and_of_replicas_are_searched_on_both_sides(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with border(tmp_path, objects) as there:
        router = there.bench.broker.queues
        segment = router.logic.segments.of("t", MappingItem(0, router.broker_name, 0, 0))
        assert await segment.offset_by_time(there.times[WANTED], upper=False) == WANTED
        assert await segment.offset_by_time(there.times[WANTED] + 500, upper=True) == WANTED
        replica = ReplicaQueues(router.topics, router.groups, router.queues, router.puller)
        found = replica.offset_by_time("t", 0, there.times[WANTED])
        assert not isinstance(found, int)
        assert await found == WANTED
        record = replica.find_record(there.log_offsets[WANTED])
        assert record is not None
        assert not isinstance(record, bytes | memoryview)
        assert decode_record(await record or b"").queue_offset == WANTED


async def record_at(bench: Bench, log_offset: int) -> bytes | memoryview | None:
    found = bench.broker.queues.find_record(log_offset)
    return found if found is None or isinstance(found, bytes | memoryview) else await found


async def test_a_record_is_found_by_its_log_offset_on_both_sides_of_the_border(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with border(tmp_path, objects) as there:
        for number in (0, WANTED, there.first_local - 1, there.first_local, COUNT - 1):
            record = await record_at(there.bench, there.log_offsets[number])
            assert record is not None
            assert decode_record(record).queue_offset == number
        for other in (there.log_offsets[WANTED] + 1, 1 << 62):
            assert await record_at(there.bench, other) is None


async def test_a_record_among_those_of_many_queues_is_found(tmp_path: Path, objects: FaultyObjects) -> None:
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        for number in range(10):
            bench.broker.topics.create(TopicConfig(f"t{number}"))
        wanted = []
        for number in range(120):
            message = OutgoingMessage(f"t{number % 10}", f"{number} {'x' * 60}".encode(), {}, queue_id=number % 4)
            [receipt] = await bench.broker.delivery.send([message])
            wanted.append((receipt.log_offset, message.body))
        await make_cold(bench)
        for log_offset, body in wanted:
            record = await record_at(bench, log_offset)
            assert record is not None
            assert body_of(record).encode() == body
        bench.broker.topics.delete("t3")
        log_start = bench.broker.maintenance.store.log_start
        gone = next(log_offset for number, (log_offset, _) in enumerate(wanted) if number % 10 == 3)
        assert gone < log_start
        assert await record_at(bench, gone) is None


async def test_a_record_that_is_damaged_in_the_store_is_not_found_and_one_that_is_away_is_an_error(
    tmp_path: Path, objects: FaultyObjects
) -> None:
    async with border(tmp_path, objects) as there:
        objects.plan.extend([ObjectFault.BEFORE] * 4)
        with pytest.raises(MillstreamError, match="does not answer"):
            await record_at(there.bench, there.log_offsets[WANTED])
        objects.plan.clear()
        where = there.bench.broker.cold.map.find("t", 0, WANTED)
        assert where is not None
        objects.objects[where.key] = objects.objects[where.key][:20] + b"?" + objects.objects[where.key][21:]
        assert await record_at(there.bench, there.log_offsets[0]) is None
        del objects.objects[where.key]
        there.bench.broker.cold.blocks.forget(where.key)
        assert await record_at(there.bench, there.log_offsets[0]) is None


def test_clients_reach_cold_messages_by_time_and_by_offset_message_id(tmp_path: Path) -> None:
    messages = [OutgoingMessage("t", f"{n} {'x' * 60}".encode(), {}, queue_id=0) for n in range(400)]
    with cold_servers(tmp_path, messages, TopicConfig("t", read_queues=1, write_queues=1)) as cold:
        assert cold.disk_offsets[0] > 40
        with BlockingClient(cold.servers.nameserver, group="g") as client:
            [queue] = client.queues("t")
            first = client.pull(queue, 40, max_messages=1)
            [record] = first.records()
            stored = decode_record(record)
            client.create_group(GroupConfig("g"))
            ext = {"topic": "t", "group": "g", "timestamp": str(stored.store_timestamp_ms)}
            command = RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**ext, "isForce": "true"})
            client.run(client.conversations.ask(cold.servers.broker_address, command))
            assert client.query_offset("g", queue) == 40
            [found] = client.find_messages(offset_message_id(stored.store_host, stored.log_offset))
            assert (found.queue_offset, found.body) == (40, messages[40].body)
