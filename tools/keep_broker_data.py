"""Keeps the data directories of two brokers as this version writes them, for tests of versions to come.

Usage: PYTHONPATH=src:tests python tools/keep_broker_data.py

Writes the next `tests/data/broker-N.tar.xz`: the directories `a` and `b` of two brokers of one cluster, and
`expected.json` with what they hold. `tests/server/test_kept_directories.py` opens all such archives.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from broker_cluster import running_cluster
from kept_data import EXPECTED_FILE, KEPT_OPTIONS, next_archive, pack
from millstream.broker.access_file import open_access_book
from millstream.broker.broker import Broker
from millstream.broker.data_directory import document, note_directory
from millstream.broker.delivery import timers, transactions
from millstream.broker.queues.consumer_groups import RequestKind, RequestMode
from millstream.broker.queues.topics import DEAD_LETTER_PREFIX
from millstream.client.bulk.producer import BulkProducer
from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.client.puller import Puller
from millstream.client.static_topics import StaticTopicOperations
from millstream.cluster.key_values import KeyValues
from millstream.model.clock import ManualClock
from millstream.model.group import GroupConfig
from millstream.model.message import Message, OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, DeadLetterQuery, PopRequest, Resolution
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.security.policy import PolicyEntry
from millstream.security.users import User, UserKind
from millstream.store import message_store
from millstream.store.index.key_index import KeyIndex, KeyIndexOptions

START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
TYPES = {
    "orders": MessageType.NORMAL,
    "ordered": MessageType.FIFO,
    "later": MessageType.DELAY,
    "payments": MessageType.TRANSACTION,
    "anything": MessageType.MIXED,
    "urgent": MessageType.PRIORITY,
    "notes": MessageType.LITE,
    "popped": MessageType.NORMAL,
}
ATTRIBUTES = {"bulk": {"queue.type": "BatchCQ"}, "latest": {"cleanup.policy": "COMPACTION"}}
ORDERS = 400
BULK_ROWS = 500
COMPACTED = 1000


async def fill(broker: Broker, clock: ManualClock) -> None:
    """Give broker `a` messages of all types, and let groups stand somewhere among them."""
    for name, kind in TYPES.items():
        broker.topics.create(TopicConfig(name, kind, read_queues=2, write_queues=2))
    for name, attributes in ATTRIBUTES.items():
        broker.topics.create(TopicConfig(name, read_queues=1, write_queues=1, attributes=attributes))

    async def send(topic: str, body: str, queue_id: int | None = 0, **properties: str) -> None:
        held = {"UNIQ_KEY": f"ID-{topic}-{body.strip()}", **properties}
        await broker.delivery.send([OutgoingMessage(topic, body.encode(), held, queue_id=queue_id)])
        clock.advance_ms(1)

    for number in range(COMPACTED):
        await send("latest", f"{number}", KEYS=f"k{number % 2}")
    assert await asyncio.to_thread(broker.maintenance.store.compact, {"latest"}) == 1
    for number in range(ORDERS):
        await send("orders", f"{number:<200}", number % 2, TAGS=("red", "green")[number % 3 == 0], KEYS=f"k{number}")
    for number in range(6):
        await send("ordered", f"{number}", None, __SHARDINGKEY=f"g{number % 2}")
        await send("popped", f"{number}")
        await send("urgent", f"{number}", None, _SYS_MSG_PRIORITY_=f"{number % 2}")
        await send("notes", f"{number}", None, __LITE_TOPIC=f"user-{number % 2}")
    await send("latest", "last", KEYS="k1")
    await send("later", "soon", TIMER_DELAY_SEC="1")
    await send("later", "in an hour", TIMER_DELIVER_MS=str(clock.now_ms() + HOUR_MS))
    await send("later", "tomorrow", TIMER_DELIVER_MS=str(clock.now_ms() + 24 * HOUR_MS))
    await send("later", "recalled", TIMER_DELIVER_MS=str(clock.now_ms() + HOUR_MS))
    await broker.delivery.recall("later", "ID-later-recalled")
    for body, resolution in (
        ("committed", Resolution.COMMIT),
        ("rolled back", Resolution.ROLLBACK),
        ("open", None),
        ("open too", None),
    ):
        await send("payments", body, TRAN_MSG="true")
        if resolution is not None:
            await broker.delivery.end_transaction("payments", f"ID-payments-{body}", resolution)
    await send("anything", "plain")
    await send("anything", "in an hour", TIMER_DELAY_SEC="3600")
    clock.advance_ms(2000)
    while broker.maintenance.store.max_offset("later", 0) == 0:  # noqa: ASYNC110 - timers poll
        await asyncio.sleep(0.01)
    consume(broker)
    await pop(broker)


def consume(broker: Broker) -> None:
    """Groups with offsets, one of which was reset."""
    broker.groups.create(GroupConfig("readers", max_attempts=3))
    broker.queues.commit("readers", "orders", 0, 50)
    broker.queues.commit("readers", "orders", 1, 7)
    broker.queues.commit("others", "orders", 0, 200)
    broker.groups.set_request_mode("orders", "others", RequestMode(RequestKind.POP, 2))


async def pop(broker: Broker) -> None:
    """Six messages: one is acknowledged, one dead and sent anew, one put off, two in flight, one left."""
    found = await broker.delivery.pop(PopRequest("poppers", "popped", 600_000, max_messages=5, queue_id=0))
    asks = [AckRequest("poppers", "popped", one.handle) for one in found]
    broker.delivery.ack(asks[0])
    await broker.delivery.move_to_dead_letter(asks[1])
    broker.delivery.change_invisible(ChangeInvisibleRequest("poppers", "popped", found[2].handle, HOUR_MS))
    await broker.delivery.redrive(DeadLetterQuery("poppers"), "anything")


async def send_by_client(client: Client) -> None:
    """A bulk topic, and a static one whose only queue moves from broker to broker."""
    rows = {"body": [f"row {number}".encode() for number in range(BULK_ROWS)]}
    async with BulkProducer(client) as bulk:
        await bulk.send_batch("bulk", pa.record_batch(rows))
    static, producer = StaticTopicOperations(client.conversations), Producer(client)
    await client.run(static.create(TopicConfig("static"), 1, ["a"]))
    for number, broker in enumerate(("b", "a", "b")):
        await producer.send(Message("static", f"{number}".encode()))
        await client.run(static.remap("static", [broker]))
    await producer.send(Message("static", b"3"))


def keep_users_and_keys(directory: Path) -> None:
    """A super user, one who may send alone, and an order of queues, as they stand in the broker's directory."""
    book = open_access_book(directory)
    book.create_user(User("root", "secret-of-root", UserKind.SUPER))
    book.create_user(User("ann", "secret-of-ann"))
    book.put_entries("ann", [PolicyEntry.read("Topic:orders", ["Pub"], (), "Allow", "Custom")])
    keys = KeyValues(document(directory, "config/nameserver.json"))
    keys.put("ORDER_TOPIC_CONFIG", "ordered", "a:2;b:2")
    note_directory(directory)


async def messages(client: Client) -> dict[str, list[list[Any]]]:
    """What can be read of each topic: queue, offset, body, tag and keys."""
    found: dict[str, list[list[Any]]] = {}
    puller = Puller(client)
    for topic in sorted([*TYPES, *ATTRIBUTES, "static", DEAD_LETTER_PREFIX + "poppers"]):
        if topic == "notes":
            # Its messages lie in the queues of lite topics, which are popped alone.
            continue
        for held in await client.queue_ranges(topic):
            offset = held.range.min_offset
            while offset < held.range.max_offset:
                batch = await puller.pull(held.queue, offset)
                for one in batch.messages(verify=True):
                    row = [one.queue_id, one.queue_offset, one.body.decode(), one.tag, list(one.keys)]
                    found.setdefault(topic, []).append(row)
                offset = batch.next_offset
    return found


async def make(directory: Path) -> None:
    """Make both directories and what to expect of them."""
    # What is asked again while a manual clock stands still must not be asked for long.
    timers.POLL_S = transactions.POLL_S = 0.002
    # Runs of the index for a log of this size.
    options = KeyIndexOptions(run_log_bytes=16 * 1024, fan_in=2)
    message_store.KeyIndex = partial(KeyIndex, options=options)  # type: ignore[misc, assignment]
    clock = ManualClock(START_MS)
    async with running_cluster(directory, ["a", "b"], options=KEPT_OPTIONS, clock=clock) as cluster:
        async with Client(cluster.nameserver) as client:
            await fill(cluster.brokers["a"], clock)
            # Topics that the broker was given directly are known to the nameserver by its own calls.
            await send_by_client(client)
            found = await messages(client)
        cluster.brokers["b"].maintenance.permission.put(Permission.READ)
        await asyncio.to_thread(cluster.brokers["a"].maintenance.store.write_checkpoint)
    keep_users_and_keys(directory / "a")
    expected = {"time_ms": clock.now_ms(), "messages": found}
    (directory / EXPECTED_FILE).write_text(json.dumps(expected, indent=1))


def main() -> None:
    """Make and pack them."""
    archive = next_archive("broker")
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(make(Path(scratch)))
        pack(Path(scratch), archive)
    print(f"{archive} {archive.stat().st_size} bytes")


if __name__ == "__main__":
    main()
