"""A broker over an object store against a plain list: sends, uploads, faults of the store, retention, crashes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from broker_bench import MEMORY
from crash.faulty_objects import FaultyObjects, ObjectFault
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from example_counts import scaled
from millstream.broker import cold_merges, cold_tier, maintenance
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import GRACE_MS, TieredOptions
from millstream.broker.queues import reader
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PopRequest, PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.server.restoring import restore_broker
from millstream.store.message_store import StoreOptions
from millstream.tiered import merge_plan
from millstream.tiered.cold_blocks import MAX_REFETCHES
from millstream.tiered.cold_map import ColdStretch
from millstream.tiered.merge_plan import MERGE_AGE_MS

HOUR_MS = 3_600_000
SMALL = StoreOptions(segment_bytes=4 * 1024, consume_queue_entries=8, flush_interval_ms=60_000)
TIERED = TieredOptions(roll_s=1e9, stretch_bytes=2 * 1024, keep_hours=100_000)
FAULTS = [None, None, ObjectFault.BEFORE, ObjectFault.AFTER, ObjectFault.DENIED, ObjectFault.ALTERED]
T = TypeVar("T")


class ColdTierMachine(RuleBasedStateMachine):
    """`sent` has the bodies of queue 0 of `t` by offset; `popped` those that the group has acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        # What the broker does by itself comes at times of its own, and a run is to be repeated.
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(reader, "AWAY_PAUSE_S", 0.001)
        for name in ("UPLOAD_INTERVAL_S", "CLEAN_INTERVAL_S"):
            self.patches.setattr(cold_tier, name, 1e6)
        self.patches.setattr(maintenance, "RETENTION_INTERVAL_S", 1e6)
        self.patches.setattr(cold_merges, "MERGE_INTERVAL_S", 0.0)
        self.patches.setattr(merge_plan, "MERGED_ROWS", 3)
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY))
        self.lives = 0
        self.clock = ManualClock()
        self.objects = FaultyObjects()
        self.sent: list[str] = []
        self.popped: list[str] = []
        self.broker = self._open(self.root / "0")

    def teardown(self) -> None:
        self.run(self.broker.close())
        self.runner.close()
        self.patches.undo()
        shutil.rmtree(self.root)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def _open(self, directory: Path) -> Broker:
        async def start() -> Broker:
            broker = Broker(
                directory,
                options=BrokerOptions(store=SMALL, tiered=TIERED),
                clock=self.clock,
                open_objects=lambda: self.objects,
            )
            await broker.start()
            if broker.topics.find("t") is None:
                broker.topics.create(TopicConfig("t"))
            return broker

        return self.run(start())

    @rule(count=st.integers(1, 30), size=st.integers(0, 300))
    def send(self, count: int, size: int) -> None:
        bodies = [f"{len(self.sent) + number} {'x' * size}" for number in range(count)]
        messages = [OutgoingMessage("t", body.encode(), {}, queue_id=0) for body in bodies]
        self.run(self.broker.delivery.send(messages))
        self.sent += bodies

    @rule(plan=st.lists(st.sampled_from(FAULTS), max_size=6))
    def upload(self, plan: list[ObjectFault | None]) -> None:
        self.broker.maintenance.store.flush()
        self.objects.plan.extend(plan)
        with suppress(MillstreamError):
            self.run(self.broker.cold.upload_due())
        self.objects.plan.clear()

    @rule()
    def let_go(self) -> None:
        """The disk keeps what it must."""
        self.clock.advance_ms(100 * HOUR_MS)
        self.broker.maintenance.store.write_checkpoint()
        self.run(self.broker.maintenance.retain())

    @rule()
    def clean(self) -> None:
        self.clock.advance_ms(GRACE_MS + 1)
        self.run(self.broker.cold.clean())

    @rule(plan=st.lists(st.sampled_from(FAULTS), max_size=8))
    def merge(self, plan: list[ObjectFault | None]) -> None:
        self.clock.advance_ms(MERGE_AGE_MS + 1)
        self.objects.plan.extend(plan)
        with suppress(MillstreamError):
            while self.run(self.broker.cold.merge_due()):
                pass
        self.objects.plan.clear()

    @rule(step=st.integers(1, 3))
    def crash_within_a_merge(self, step: int) -> None:
        """Before the `step`th change of the rows: when it is begun, when all is put, and when it is committed."""

        def write(rows: Iterable[tuple[str, ColdStretch | None]]) -> None:
            nonlocal step
            changes = list(rows)
            step -= 1 if changes else 0
            if not step:
                raise asyncio.CancelledError
            whole(changes)

        self.clock.advance_ms(MERGE_AGE_MS + 1)
        whole = self.broker.cold.write
        self.broker.cold.write = write  # type: ignore[method-assign]
        with suppress(asyncio.CancelledError):
            self.run(self.broker.cold.merge_due())
        self.crash()

    @rule(count=st.integers(1, 32))
    def pop(self, count: int) -> None:
        async def take() -> list[str]:
            popped = await self.broker.delivery.pop(PopRequest("g", "t", 60_000, queue_id=0, max_messages=count))
            for one in popped:
                self.broker.delivery.ack(AckRequest("g", "t", one.handle))
            return [one.message.body.decode() for one in popped]

        self.popped += self.run(take())
        assert self.popped == self.sent[: len(self.popped)]

    # What is altered each time that it is fetched again would be passed over.
    @rule(plan=st.lists(st.sampled_from([ObjectFault.BEFORE, ObjectFault.ALTERED, None]), max_size=MAX_REFETCHES))
    def read_while_the_store_fails(self, plan: list[ObjectFault | None]) -> None:
        self.objects.plan.extend(plan)
        with suppress(MillstreamError):
            for offset, body in self.run(self._read(0)):
                assert body == self.sent[offset]
        self.objects.plan.clear()

    @rule()
    def crash(self) -> None:
        """What the next process finds: the files as they are, and the object store as it is."""
        self.run(self._save_offsets())
        self.lives += 1
        directory = self.root / str(self.lives)
        shutil.copytree(self.broker.directory, directory)
        self.run(self.broker.close())
        shutil.rmtree(self.broker.directory)
        self.broker = self._open(directory)

    @rule()
    def lose_the_disk(self) -> None:
        """After all went up, so that nothing is lost with it."""
        self.broker.maintenance.store.flush()
        self.run(self._upload_all())
        self.run(self.broker.close())
        shutil.rmtree(self.broker.directory)
        self.lives += 1
        directory = self.root / str(self.lives)
        restore_broker(self.objects, directory, segment_bytes=SMALL.segment_bytes)
        self.broker = self._open(directory)

    async def _upload_all(self) -> None:
        cold = self.broker.cold
        cold._uploaded_s = -1e12
        while cold._uploaded_s < 0 and cold.report().behind_bytes:
            await cold.upload_due()
        # Also where nothing was due: the group went on.
        cold._changes_unsaid, cold._uploaded_s = 1, 1e12
        while await cold.upload_due():
            pass
        assert cold._changes_unsaid == 0

    async def _save_offsets(self) -> None:
        self.broker.maintenance.store.flush()
        self.broker.write_state()

    async def _read(self, offset: int) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        while True:
            result = await self.broker.queues.pull(PullRequest("r", "t", 0, offset, max_messages=32))
            if result.status is not PullStatus.FOUND:
                return found
            decoded = [decode_record(record) for record in result.records]
            assert [one.queue_offset for one in decoded] == list(range(offset, result.next_offset))
            found += [(one.queue_offset, one.body.decode()) for one in decoded]
            offset = result.next_offset

    @invariant()
    def every_message_is_read_once_and_in_order(self) -> None:
        assert [body for _, body in self.run(self._read(0))] == self.sent

    @invariant()
    def every_object_of_the_map_is_in_the_store(self) -> None:
        assert {one.key for _, one in self.broker.cold.map.objects} <= set(self.objects.objects)


TestColdTier = ColdTierMachine.TestCase
TestColdTier.settings = settings(max_examples=scaled(40), stateful_step_count=20, deadline=None)
