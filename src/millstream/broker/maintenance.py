"""Periodic maintenance of a broker, and its report on the store, the traffic and the backlog."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Self

from millstream.broker.delivery.timers import Timers
from millstream.broker.delivery.transactions import Transactions
from millstream.broker.light_queues.light_queues import LightQueues
from millstream.broker.permission import BrokerPermission
from millstream.broker.pop.lite_topics import LiteExpiry
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.broker_state import BrokerState
from millstream.broker.statistics import Statistics
from millstream.broker.traffic import LOOK_INTERVAL_MS, Traffic
from millstream.model.clock import WatchedClock
from millstream.model.errors import MillstreamError
from millstream.store.compaction.pace import CompactionPace
from millstream.store.message_store import MessageStore

__all__ = ["CLOCK_INTERVAL_S", "RETENTION_INTERVAL_S", "Maintenance", "retain"]

RETENTION_INTERVAL_S = 10.0
"""Seconds between two looks at what may go and at how full the disk is."""

FAILURE_PAUSE_S = 5.0
"""Seconds that a task waits longer after it failed."""

MAX_OFFSETS_WRITTEN_A_SECOND = 20_000
"""Queues and deliveries in flight whose state goes to the log in a second: about 1 MB."""

LITE_INTERVAL_S = 10.0
"""Seconds between two looks at the lite topics, and at the light queues, that are to go."""

CLOCK_INTERVAL_S = 1.0
"""Seconds between two looks whether the wall clock was put forward or back, where nothing else looks."""

_log = logging.getLogger(__name__)


class Maintenance:
    """Tasks that run from `start` to `close`, and what is measured. A task that fails is logged and tried again.

    The tasks save the offsets, compact and remove old messages, expire lite topics and light queues, note how much
    went through the broker and look at the wall clock.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicRegistry,
        groups: GroupRegistry,
        offsets: OffsetTable,
        state: BrokerState,
        lite_expiry: LiteExpiry,
        light_queues: LightQueues,
        traffic: Traffic,
        statistics: Statistics,
        permission: BrokerPermission,
        timers: Timers,
        transactions: Transactions,
        polls: LongPolls,
        clock: WatchedClock,
    ) -> None:
        self.store = store
        """The log and its indexes: how far they are, what they keep, how full the disk is."""
        self.traffic = traffic
        """Messages and bytes a second, by topic and group, up to two days back."""
        self.statistics = statistics
        """Counters since the start."""
        self.permission = permission
        """Whether the broker takes new messages."""
        self.timers = timers
        """Delayed messages: how many wait and how late they are."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._state = state
        self._lite_expiry = lite_expiry
        self.light_queues = light_queues
        """The light queues: which there are, and how they go."""
        self._transactions = transactions
        self._polls = polls
        self._clock = clock
        self._closing = asyncio.Event()
        self._retaining = asyncio.Lock()
        self._pace = CompactionPace()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def delayed_messages(self) -> int:
        """Messages that wait for their time."""
        return self.timers.pending + self.timers.unscheduled

    @property
    def open_transactions(self) -> int:
        """Half messages that are neither committed nor rolled back."""
        return self._transactions.pending

    @property
    def waiting_requests(self) -> int:
        """Pulls and pops that wait for messages."""
        return self._polls.waiting

    def start(self, *, offset_save_interval_s: float) -> Self:
        """Begin the tasks."""
        self._tasks = [
            asyncio.create_task(self._every(offset_save_interval_s, self._save_offsets), name="save-offsets"),
            asyncio.create_task(self._every(RETENTION_INTERVAL_S, self._retain_beside_clients), name="retention"),
            asyncio.create_task(self._every(LITE_INTERVAL_S, self._lite_expiry.sweep), name="lite-expiry"),
            asyncio.create_task(self._every(LITE_INTERVAL_S, self.light_queues.sweep), name="light-queues"),
            asyncio.create_task(self._every(LOOK_INTERVAL_MS / 1000, self.traffic.look), name="traffic"),
            asyncio.create_task(self._every(CLOCK_INTERVAL_S, self._look_at_the_clock), name="clock"),
        ]
        return self

    async def close(self) -> None:
        """End the tasks; what is under way is finished, without pauses."""
        self._closing.set()
        self._pace.hurry()
        await asyncio.gather(*self._tasks)

    async def retain(self) -> None:
        """Compact what is worth it, and remove what is too old, by the topics' own times and of the whole log.

        As the broker does by itself every 10 s, but at once: a compaction under way pauses no more.
        Raises STORE_FAILED.
        """
        self._pace.hurry()
        async with self._retaining:
            await retain(self.store, self._state, self._topics)

    async def _retain_beside_clients(self) -> None:
        async with self._retaining:
            self._pace.begin()
            pace = None if self._closing.is_set() else self._pace
            await retain(self.store, self._state, self._topics, pace)

    async def _save_offsets(self) -> float:
        """Write what changed; the seconds to wait longer, so that offsets take a bounded part of the log."""
        if self.store.failure is not None:
            return FAILURE_PAUSE_S
        self._groups.save_unsaved()
        if not self._offsets.is_changed:
            return 0.0
        return await self._offsets.write_changes_in_turns() / MAX_OFFSETS_WRITTEN_A_SECOND

    async def _look_at_the_clock(self) -> None:
        self._clock.now_ms()

    async def _every(self, interval_s: float, act: Callable[[], Awaitable[float | None]]) -> None:
        """Act in intervals, and later where the last call asked for more seconds."""
        longer_s: float | None = None
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), interval_s + (longer_s or 0.0))
            try:
                longer_s = await act()
            except MillstreamError as error:
                longer_s = FAILURE_PAUSE_S
                _log.error("Maintenance failed and will be tried again: %s", error)


async def retain(
    store: MessageStore, state: BrokerState, topics: TopicRegistry, pace: CompactionPace | None = None
) -> None:
    """Save the documents of the state, compact what is worth it, with pauses where a pace is given, and remove what is
    too old.

    Raises STORE_FAILED, DISK_FULL.
    """
    # First: the log is kept from the first change on that is in no document.
    await state.save_in_turns()
    time_to_live_ms = {topic.name: topic.time_to_live_ms for topic in topics.all() if topic.time_to_live_ms is not None}
    compacted = {topic.name for topic in topics.all() if topic.is_compacted}
    if compacted:
        # Where nothing is taken in until something was removed, that cannot wait.
        await asyncio.to_thread(store.compact, compacted, None if store.is_disk_full else pace)
    was_full = store.is_disk_full
    retained = await asyncio.to_thread(store.retain, time_to_live_ms)
    if retained.is_disk_full and not was_full:
        _log.error("The disk is filled beyond its watermark; messages are refused until there is room.")
