"""Producers and consumers of every feature over a broker in this process, until it is killed at a fault point.

Run by S5: `python -m crash.feature_load DATA HISTORIES LIFE POINT CALL SEED [TRANSACTION=RESOLUTION ...]`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crash.fault_points import POINTS, arm
from crash.history import HistoryWriter
from millstream.broker import maintenance
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.delivery import timers, transactions
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.topics import DEAD_LETTER_PREFIX
from millstream.model import properties as names
from millstream.model.errors import MillstreamError
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PopRequest, Resolution
from millstream.model.topic import MessageType, TopicConfig
from millstream.store.message_store import StoreOptions

__all__ = ["DEAD_TOPIC", "DELAYED", "INVISIBLE_MS", "PLAIN", "TOPICS", "TRANSACTIONAL", "FeatureLoad", "broker_of"]

PLAIN, DELAYED, TRANSACTIONAL = "plain", "delayed", "transactional"
GROUP = "readers"
TOPICS = {PLAIN: MessageType.NORMAL, DELAYED: MessageType.DELAY, TRANSACTIONAL: MessageType.TRANSACTION}
DEAD_TOPIC = DEAD_LETTER_PREFIX + GROUP

INVISIBLE_MS = 400
LONGEST_LIFE_S = 4.0
"""A life that does not come to its point ends by itself then, cleanly."""

_MAX_ATTEMPTS = 3
_PAUSE_S = 0.004
_MAX_DELAY_MS = 400
_SAVE_S = 0.05


class FeatureLoad:
    """The clients of one life."""

    def __init__(self, broker: Broker, histories: Path, life: str, seed: int) -> None:
        self._broker = broker
        self._life = life
        self._random = random.Random(seed)
        self._sent = HistoryWriter(histories, f"sender-{life}")
        self._got = HistoryWriter(histories, f"consumer-{life}")
        self._saves = HistoryWriter(histories, f"offsets-{life}")

    def watch_saves(self) -> None:
        """Note when offsets are read for a save, and when they are in the log, which a kill leaves whole."""
        write, writer = OffsetTable.write_changes_in_turns, self._saves
        numbers = itertools.count(1)

        async def noted_write(table: OffsetTable) -> int:
            name = f"{self._life}.{next(numbers)}"
            writer.write("saving", name)
            written = await write(table)
            writer.write("saved", name, lane=self._life)
            return written

        setattr(OffsetTable, "write_changes_in_turns", noted_write)  # noqa: B010 - a method is replaced on purpose

    def prepare(self) -> None:
        """Make the topics and the group, if they are not there."""
        for name, kind in TOPICS.items():
            if self._broker.topics.find(name) is None:
                self._broker.topics.create(TopicConfig(name, kind, read_queues=2, write_queues=2))
        self._broker.groups.create(GroupConfig(GROUP, max_attempts=_MAX_ATTEMPTS))

    async def end_unfinished(self, unfinished: Iterable[str]) -> None:
        """End again the same way the transactions, as NAME=RESOLUTION, whose answers a crash has cut off."""
        for word in unfinished:
            name, _, resolution = word.partition("=")
            await self.end(name, Resolution(resolution))

    async def run(self, seconds: float) -> None:
        """Send and consume."""
        until_s = time.monotonic() + seconds
        producers = (self._plain, self._delayed, self._transaction)
        await asyncio.gather(
            *(self._produce(one, until_s) for one in producers), *(self.consume(topic, until_s) for topic in TOPICS)
        )

    async def _produce(self, one: Callable[[str], Any], until_s: float) -> None:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            await one(f"{one.__name__[1:]}.{self._life}.{number}")
            await asyncio.sleep(_PAUSE_S)

    async def _send(self, topic: str, name: str, due_ms: int = 0, more: Mapping[str, str] | None = None) -> None:
        body = name.encode() + b" " + b"x" * self._random.randrange(200)
        held = {names.UNIQUE_KEY: name, **(more or {})}
        due_s = time.monotonic() + due_ms / 1000 if due_ms else 0.0
        if due_ms:
            held["TIMER_DELIVER_MS"] = str(self._broker.clock.now_ms() + due_ms)
        self._sent.write("invoke", name, checksum=zlib.crc32(body), queue=topic, due_s=due_s)
        await self._broker.delivery.send([OutgoingMessage(topic, body, held)])
        self._sent.write("ok", name)

    async def _plain(self, name: str) -> None:
        await self._send(PLAIN, name)

    async def _delayed(self, name: str) -> None:
        await self._send(DELAYED, name, self._random.randrange(20, _MAX_DELAY_MS))
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.random() * _MAX_DELAY_MS / 2000)
            self._sent.write("recall", name)
            try:
                await self._broker.delivery.recall(DELAYED, name)
            except MillstreamError:
                self._sent.write("not-recalled", name)
            else:
                self._sent.write("recalled", name)

    async def _transaction(self, name: str) -> None:
        await self._send(TRANSACTIONAL, name, more={names.TRANSACTION: "true"})
        if self._random.random() < 0.9:
            await self.end(name, self._random.choice((Resolution.COMMIT, Resolution.ROLLBACK)))

    async def end(self, name: str, resolution: Resolution) -> None:
        """End a transaction, and note how."""
        self._sent.write("end", name, lane=resolution.value)
        await self._broker.delivery.end_transaction(TRANSACTIONAL, name, resolution)
        self._sent.write("ended", name, lane=resolution.value)

    async def consume(self, topic: str, until_s: float, *, ack_all: bool = False) -> int:
        """Take what comes and acknowledge most of it; how many messages came."""
        found = 0
        request = PopRequest(GROUP, topic, INVISIBLE_MS, max_messages=8, wait_ms=50)
        while time.monotonic() < until_s:
            for popped in await self._broker.delivery.pop(request):
                found += 1
                name = popped.message.message_id
                self._got.write("delivered", name, checksum=zlib.crc32(popped.message.body))
                chance = 0.0 if ack_all else self._random.random()
                if chance < 0.75:
                    self._got.write("ack", name)
                    self._broker.delivery.ack(AckRequest(GROUP, topic, popped.handle))
                    self._got.write("acked", name, lane=self._life)
                elif chance < 0.85:
                    self._broker.delivery.change_invisible(ChangeInvisibleRequest(GROUP, topic, popped.handle, 20))
            await asyncio.sleep(0)
        return found

    def close(self) -> None:
        """Close the histories."""
        for writer in (self._sent, self._got, self._saves):
            writer.close()


def broker_of(data: Path) -> Broker:
    """For one life: a broker that saves often, so that crashes meet all stages of a save."""
    maintenance.RETENTION_INTERVAL_S = 4 * _SAVE_S
    timers.CHECKPOINT_INTERVAL_S = transactions.CHECKPOINT_INTERVAL_S = 2 * _SAVE_S
    options = BrokerOptions(
        store=StoreOptions(segment_bytes=4 * 1024 * 1024, consume_queue_entries=10_000), offset_save_interval_s=_SAVE_S
    )
    return Broker(data, options=options)


async def _live(data: Path, load_words: tuple[Path, str, int], unfinished: Sequence[str]) -> None:
    broker = broker_of(data)
    await broker.start()
    load = FeatureLoad(broker, *load_words)
    load.watch_saves()
    load.prepare()
    await load.end_unfinished(unfinished)
    await load.run(LONGEST_LIFE_S)
    await broker.close()


def main(words: list[str]) -> None:
    """Live until the kill."""
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    data, histories, life, point, at_call, seed = words[:6]
    arm(POINTS[point], int(at_call))
    asyncio.run(_live(Path(data), (Path(histories), life, int(seed)), words[6:]))


if __name__ == "__main__":
    main(sys.argv[1:])
