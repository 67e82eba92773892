"""Data directories of brokers as earlier versions have left them: all that they hold is there and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker_cluster import running_cluster
from kept_data import EXPECTED_FILE, KEPT_OPTIONS, kept_archives, unpack
from millstream.broker.access_file import open_access_book
from millstream.broker.broker import Broker
from millstream.broker.data_directory import document
from millstream.broker.delivery.half_messages import HALF_TOPIC
from millstream.broker.queues.consumer_groups import RequestKind
from millstream.client.bulk.puller import BulkPuller
from millstream.client.client import Client
from millstream.client.puller import Puller
from millstream.cluster.key_values import KeyValues
from millstream.model.clock import ManualClock
from millstream.model.errors import StartRefused, StoreError
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, DeadLetterQuery, PoppedMessage, PopRequest, Resolution
from millstream.model.topic import MessageType
from patience import within_patience

HOUR_MS = 3_600_000


@dataclass
class Kept:
    """Both brokers, which run on as if the directories had been left a second ago, and what they must hold."""

    broker: Broker
    other: Broker
    client: Client
    clock: ManualClock
    messages: dict[str, list[list[Any]]]

    async def receive(self, topic: str, group: str = "test", **more: Any) -> list[PoppedMessage]:
        """What can be popped now, acknowledged."""
        found = await self.broker.delivery.pop(PopRequest(group, topic, 60_000, max_messages=32, **more))
        for one in found:
            self.broker.delivery.ack(AckRequest(group, topic, one.handle))
        return found

    async def arrivals(self, topic: str, wanted: int, group: str = "test") -> list[str]:
        """The bodies of so many messages, sorted, as they come."""
        found: list[str] = []

        async def wait() -> None:
            while len(found) < wanted:
                found.extend(bodies(await self.receive(topic, group)))
                await asyncio.sleep(0.005)

        await within_patience(wait())
        return sorted(found)


def bodies(popped: Sequence[PoppedMessage]) -> list[str]:
    return [one.message.body.decode() for one in popped]


@pytest.fixture(autouse=True)
def _quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.delivery.timers.POLL_S", 0.002)
    monkeypatch.setattr("millstream.broker.delivery.transactions.POLL_S", 0.002)


@pytest.fixture(params=kept_archives("broker"), ids=lambda archive: archive.name.partition(".")[0])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


@pytest.fixture
async def kept(directory: Path) -> AsyncIterator[Kept]:
    expected = json.loads((directory / EXPECTED_FILE).read_text())
    clock = ManualClock(expected["time_ms"] + 1000)
    async with (
        running_cluster(directory, ["a", "b"], options=KEPT_OPTIONS, clock=clock) as cluster,
        Client(cluster.nameserver) as client,
    ):
        yield Kept(cluster.brokers["a"], cluster.brokers["b"], client, clock, expected["messages"])


async def test_every_message_is_read_at_its_offset(kept: Kept) -> None:
    found: dict[str, list[list[Any]]] = {}
    puller = Puller(kept.client)
    for topic in kept.messages:
        for held in await kept.client.queue_ranges(topic):
            offset = held.range.min_offset
            while offset < held.range.max_offset:
                batch = await puller.pull(held.queue, offset)
                for one in batch.messages(verify=True):
                    row = [one.queue_id, one.queue_offset, one.body.decode(), one.tag, list(one.keys)]
                    found.setdefault(topic, []).append(row)
                offset = batch.next_offset
    assert found == kept.messages
    assert min(len(rows) for rows in found.values()) > 0


async def test_messages_are_found_by_key_and_time_and_new_ones_follow(kept: Kept) -> None:
    (record,) = await kept.broker.queues.find_by_key("orders", "k17", 0, kept.clock.now_ms(), 32)
    assert b"17 " in bytes(record)
    assert kept.broker.queues.offset_by_time("orders", 0, kept.clock.now_ms()) == 200
    assert kept.broker.queues.offset_by_time("orders", 0, kept.clock.now_ms() - HOUR_MS) == 0
    (receipt,) = await kept.broker.delivery.send([OutgoingMessage("orders", b"new", {}, queue_id=0)])
    assert receipt.queue_offset == 200


async def test_topics_groups_and_their_offsets_are_there(kept: Kept) -> None:
    types = {topic.name: topic.message_type for topic in kept.broker.topics.all()}
    assert {MessageType.FIFO, MessageType.LITE, MessageType.MIXED, MessageType.PRIORITY} <= set(types.values())
    assert kept.broker.groups.get("readers").max_attempts == 3
    offsets = {(group, queue): kept.broker.queues.committed_offset(group, "orders", queue)
               for group, queue in (("readers", 0), ("readers", 1), ("others", 0), ("others", 1))}  # fmt: skip
    assert offsets == {("readers", 0): 50, ("readers", 1): 7, ("others", 0): 200, ("others", 1): None}
    assert kept.broker.queues.committed_offset("poppers", "popped", 0) == 2
    assert kept.broker.groups.request_mode("orders", "others").kind is RequestKind.POP
    drained = [broker.maintenance.permission.is_drained for broker in (kept.broker, kept.other)]
    assert drained == [False, True]


async def test_delayed_messages_come_at_their_time(kept: Kept) -> None:
    assert bodies(await kept.receive("later")) == ["soon"]
    kept.clock.advance_ms(HOUR_MS)
    assert await kept.arrivals("later", 1) == ["in an hour"]
    assert await kept.arrivals("anything", 3) == ["1", "in an hour", "plain"]
    kept.clock.advance_ms(23 * HOUR_MS)
    assert await kept.arrivals("later", 1) == ["tomorrow"]
    assert kept.broker.maintenance.timers.pending == 0


async def test_open_transactions_are_ended(kept: Kept) -> None:
    assert bodies(await kept.receive("payments")) == ["committed"]
    assert kept.broker.maintenance.store.max_offset(HALF_TOPIC, 0) >= 4
    await kept.broker.delivery.end_transaction("payments", "ID-payments-open", Resolution.COMMIT)
    await kept.broker.delivery.end_transaction("payments", "ID-payments-open too", Resolution.ROLLBACK)
    assert await kept.arrivals("payments", 1) == ["open"]
    assert await kept.receive("payments") == []


async def test_messages_in_flight_come_again_when_their_time_is_over(kept: Kept) -> None:
    assert bodies(await kept.receive("popped", "poppers")) == ["5"]
    kept.clock.advance_ms(600_000)
    again = await kept.receive("popped", "poppers")
    assert [(body, one.delivery_attempt) for body, one in zip(bodies(again), again, strict=True)] == [
        ("3", 2),
        ("4", 2),
    ]
    kept.clock.advance_ms(HOUR_MS)
    assert bodies(await kept.receive("popped", "poppers")) == ["2"]


async def test_dead_letters_that_were_sent_again_are_known(kept: Kept) -> None:
    assert len(kept.broker.delivery.dead_letters(DeadLetterQuery("poppers")).letters) == 1
    assert kept.broker.delivery.dead_letters(DeadLetterQuery("poppers", only_waiting=True)).letters == ()


async def test_lite_topics_give_their_messages(kept: Kept) -> None:
    start = LiteStart(LiteStartKind.MIN)
    kept.broker.delivery.sync_lite_subscription(
        LiteSync("c", "lite", "notes", LiteAction.PARTIAL_ADD, ("user-0", "user-1"), start)
    )
    found = []
    while popped := await kept.receive("notes", "lite", client_id="c"):
        found += bodies(popped)
    assert sorted(found) == [f"{number}" for number in range(6)]


async def test_bulk_batches_are_fetched_whole(kept: Kept) -> None:
    (held,) = await kept.client.queue_ranges("bulk")
    batch = await BulkPuller(kept.client).fetch(held.queue, 0)
    assert [body.decode() for body in batch.table.column("body").to_pylist()] == [
        row[2] for row in kept.messages["bulk"]
    ]


async def test_a_compacted_topic_is_compacted_on(kept: Kept) -> None:
    new = [OutgoingMessage("latest", f"new {number}".encode(), {"KEYS": "k1"}, queue_id=0) for number in range(1000)]
    await kept.broker.delivery.send(new)
    assert await asyncio.to_thread(kept.broker.maintenance.store.compact, {"latest"}) == 1
    assert bodies(await kept.receive("latest")) == ["998", "new 999"]


def test_users_and_the_nameservers_keys_are_there(directory: Path) -> None:
    book = open_access_book(directory / "a")
    assert {user.name: user.secret for user in book.users()} == {"root": "secret-of-root", "ann": "secret-of-ann"}
    (entry,) = book.entries("ann")
    assert str(entry.pattern) == "Topic:orders"
    keys = KeyValues(document(directory / "a", "config/nameserver.json"))
    assert keys.table("ORDER_TOPIC_CONFIG") == {"ordered": "a:2;b:2"}


@pytest.mark.parametrize(
    "part", ["store/commitlog/00000000000000065536", "config/offsets.json", "config/static-topics.json"]
)
async def test_a_kept_directory_that_lacks_a_part_is_refused(directory: Path, part: str) -> None:
    for path in (directory / "a" / part, directory / "a" / f"{part}.bak"):
        path.unlink(missing_ok=True)
    with pytest.raises((StartRefused, StoreError)):
        async with running_cluster(directory, ["a"], options=KEPT_OPTIONS):
            pass
