"""The open directory of one replica: its store, its epochs, and the broker that follows the state in it.

The store is closed and opened again where the log is cut, where the directory starts over, and where a master becomes a
replica. Store, log and broker are other ones from then on.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.state.topic_deletions import split_at_deletions
from millstream.model.clock import Clock
from millstream.model.errors import StoreError
from millstream.replication.epoch_list import EpochStart
from millstream.replication.epoch_log import EpochLog
from millstream.server.replicas.replica_seed import ReplicaSeed, plant_seed
from millstream.store.appender import REPLICAS_TIMEOUT_S
from millstream.store.cut.truncation import cut_store
from millstream.store.damage.known_damage import KnownDamage, discard_derived
from millstream.store.message_store import MessageStore, StoreOptions

__all__ = ["ReplicaStore"]

_log = logging.getLogger(__name__)

_DERIVED: Final = ("../config/transactions.json", "../config/transactions.json.bak")
"""What is derived from the log beside the store, by paths from there."""


class ReplicaStore:
    """`make_broker` makes the broker of the directory, and `on_open` is called with it, each time that it is opened.

    `kept_from` gives the log offset from which on retention must leave the log. `on_damage` is called with the log
    offset of a record that a reader finds damaged, in any thread; whether it is being mended.
    """

    def __init__(
        self,
        directory: Path,
        options: StoreOptions,
        clock: Clock,
        make_broker: Callable[[], Broker],
        *,
        on_open: Callable[[Broker], None],
        kept_from: Callable[[], int],
        on_damage: Callable[[int], bool],
    ) -> None:
        self.directory = directory
        self.is_open = False
        """False where opening it again has failed: `open` is to be called again."""
        self._options = options
        self._clock = clock
        self._make_broker = make_broker
        self._on_open = on_open
        self._kept_from = kept_from
        self._on_damage = on_damage
        self.store: MessageStore
        self.log: EpochLog
        self.damage: KnownDamage
        """What is damaged of the log."""
        self.broker: Broker

    async def open(self) -> None:
        """Open the directory. Raises StartRefused, StoreError."""
        path = self.directory / "store"
        await asyncio.to_thread(self._rebuild, path)
        self.store = await asyncio.to_thread(MessageStore.open, path, self._options, clock=self._clock)
        try:
            self.log = EpochLog(self.store, path)
            self._take_damage(path)
            self.broker = self._make_broker()
            self.broker.attach(self.store)
            self._on_open(self.broker)
        except BaseException:
            self.store.close()
            raise
        self.store.pins.append(self._kept_from)
        self.is_open = True

    @property
    def must_rebuild(self) -> bool:
        """Whether the log was mended and what is derived from it is to be made again, by `reopen`."""
        return self.is_open and self.damage.needs_rebuild and not self.damage.places

    def _rebuild(self, path: Path) -> None:
        """Remove what is derived from a log that was mended since, so that all of it is made again."""
        damage = KnownDamage(path)
        if damage.needs_rebuild and not damage.places:
            _log.warning("What is derived from the log in %s is made again, because the log was mended.", path)
            discard_derived(path, _DERIVED)
            damage.needs_rebuild = False
            damage.save()

    def _take_damage(self, path: Path) -> None:
        self.damage = damage = KnownDamage(path)
        damage.keep_within(self.log.start, self.log.end)
        for start, end in self.store.recovery.damage:
            damage.note(start, end)
            damage.needs_rebuild = True
        if self.store.recovery.damage:
            damage.save()
        self.store.on_damage = self._on_damage

    async def close(self) -> None:
        """Let go of the directory."""
        self.is_open = False
        await self.broker.detach()
        self.store.close()

    async def reopen(self) -> None:
        """Close it and open it again, so that nothing is left of what a master had in memory."""
        await self.close()
        await self.open()

    async def cut(self, log_offset: int) -> None:
        """Cut the log. Raises CUT_REFUSED, and the log is open and as it was then."""
        log_end = self.log.end
        await self.close()
        try:
            await asyncio.to_thread(self._cut, log_offset, log_end)
        finally:
            await self.open()

    async def begin_anew(self, seed: ReplicaSeed, files: dict[str, bytes]) -> None:
        """Begin with what a master gave; what the directory had is kept beside, if it had messages."""
        was_empty = self.log.start == self.log.end
        await self.close()
        try:
            suffix = f"{time.time_ns() // 1_000_000}"
            aside = plant_seed(self.directory, seed, files, self._options.segment_bytes, suffix)
            if was_empty:
                shutil.rmtree(aside)
            else:
                _log.error("The log cannot follow the master's and begins anew; what it had is kept in %s.", aside)
        finally:
            await self.open()

    def append(self, log_offset: int, records: bytes, epoch: EpochStart | None) -> None:
        """Append what the master's log has there, and delete topics where it says so. Raises as `EpochLog.append`."""
        for part_offset, part, places in split_at_deletions(log_offset, records):
            self.log.append(part_offset, part, epoch)
            for topic, place in places.items():
                self.store.delete_topics([topic], log_offset=place)

    async def await_confirmed(self, timeout_s: float = REPLICAS_TIMEOUT_S) -> None:
        """Wait until all that was written so far is confirmed. Raises REPLICAS_TIMEOUT."""
        store, end = self.store, self.store.written_log_offset
        confirmed = asyncio.Event()
        store.on_confirmed.append(confirmed.set)
        try:
            async with asyncio.timeout(timeout_s):
                while store.visible_log_offset < end:
                    confirmed.clear()
                    await confirmed.wait()
        except TimeoutError:
            raise StoreError("REPLICAS_TIMEOUT", f"The replicas did not confirm it within {timeout_s:g} s.") from None
        finally:
            store.on_confirmed.remove(confirmed.set)

    def _cut(self, log_offset: int, log_end: int) -> None:
        # The epochs of both logs prove that they went apart there, confirmed or not.
        cut_store(
            self.directory / "store",
            log_offset,
            self._options.segment_bytes,
            discard=_DERIVED,
            below_confirmed=True,
            log_end=log_end,
        )
