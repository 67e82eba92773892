"""Servers over an object store whose topic `t` has its first messages there alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.tiered.objects import ObjectStore
from millstream.tiered.places import ObjectPlace
from servers import Servers, running_servers_in_thread

__all__ = ["ColdServers", "cold_servers"]

_STORE = StoreOptions(segment_bytes=16 * 1024, consume_queue_entries=32, flush_interval_ms=20)
_DAY_MS = 24 * 3_600_000
_FOR_EVER = RetentionPolicy(keep_ms=100 * 365 * _DAY_MS)


@dataclass
class ColdServers:
    """Running servers, where their objects lie, and the first offset of each queue that the disk has."""

    servers: Servers
    objects: Path
    disk_offsets: list[int]

    @property
    def blocks_read(self) -> int:
        """Blocks of cold messages that somebody wanted of the broker."""
        return self.servers.broker.cold.report().blocks_wanted


@contextmanager
def cold_servers(
    directory: Path,
    messages: Sequence[OutgoingMessage],
    config: TopicConfig,
    *,
    place: ObjectPlace | None = None,
    seen_at: ObjectPlace | None = None,
) -> Iterator[ColdServers]:
    """All of `messages` in the topic of `config`, the first ones in the object store alone.

    The store is at `place`, None: a directory. `seen_at` is where others than the broker are told that it is.
    """
    objects = directory / "objects"
    place = place or ObjectPlace(f"file://{objects}")
    tiered = TieredOptions(roll_s=0.0, stretch_bytes=8 * 1024, keep_hours=1_000_000, place=seen_at or place)
    options = BrokerOptions(store=_STORE, tiered=tiered)
    open_objects = place.open
    disk_offsets = asyncio.run(_make_cold(directory / "data", options, open_objects, messages, config))
    # What the disk has then stays there.
    kept = replace(options, store=replace(_STORE, retention=_FOR_EVER))
    with running_servers_in_thread(directory / "data", options=kept, open_objects=open_objects) as servers:
        yield ColdServers(servers, objects, disk_offsets)


async def _make_cold(
    directory: Path,
    options: BrokerOptions,
    open_objects: Callable[[], ObjectStore],
    messages: Sequence[OutgoingMessage],
    config: TopicConfig,
) -> list[int]:
    clock = ManualClock(step_ms=1)
    broker = Broker(directory, name="broker-a", options=options, clock=clock, open_objects=open_objects)
    await broker.start()
    try:
        broker.topics.create(config)
        old, young = messages[: len(messages) * 3 // 4], messages[len(messages) * 3 // 4 :]
        for message in old:
            await broker.delivery.send([message])
        store = broker.maintenance.store
        store.flush()
        while broker.cold.report().behind_bytes:
            await broker.cold.upload_due()
        clock.advance_ms(30 * _DAY_MS)
        for message in young:
            await broker.delivery.send([message])
        store.flush()
        store.write_checkpoint()
        await broker.maintenance.retain()
        return [store.disk_offset(config.name, number) for number in range(config.read_queues)]
    finally:
        await broker.close()
