"""The light queues of a broker: creation, readers, and removal together with all group state about them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from millstream.broker.light_queues.dispatcher import RouteDispatcher
from millstream.broker.light_queues.queue_lengths import QueueLengths
from millstream.broker.queues.consumer_groups import GroupRegistry
from millstream.broker.queues.long_polling import LongPolls
from millstream.broker.queues.offsets import OffsetTable
from millstream.broker.state.topic_deletions import TopicDeletions
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError, NameRefused
from millstream.model.group import MAX_GROUP_ATTEMPTS, FirstPosition, GroupConfig
from millstream.model.light_queue import LIGHT_QUEUE_NUMBER, is_light_queue, light_name_of, light_queue
from millstream.model.message import OutgoingMessage
from millstream.model.properties import KEYS
from millstream.model.routing.routes import SESSION_KIND, LightQueueConfig
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.route_records import binding_key, queue_key
from millstream.store.appender import Appender
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import PendingRecord

__all__ = ["MAX_AT_ONCE", "LightQueues"]

MAX_AT_ONCE: Final = 256
"""Light queues that expire in one sweep, or whose messages are let go together, at most."""

_GATHER_S: Final = 0.02
"""How long removals are gathered: each round of them costs a flush of the log."""

_QUEUE_OF_ROUTES: Final = 0

_log = logging.getLogger(__name__)


class LightQueues:
    """Declared light queues, as the routes of `dispatcher` say. `start` before use, `close` ends what is under way.

    A light queue that is taken back is gone for readers and senders at once; its messages and its ledger are let go a
    little later. Until then none of its name is declared again: see `await_deletions`.
    """

    def __init__(
        self,
        dispatcher: RouteDispatcher,
        groups: GroupRegistry,
        offsets: OffsetTable,
        store: MessageStore,
        deletions: TopicDeletions,
        polls: LongPolls,
        clock: Clock,
    ) -> None:
        self.dispatcher = dispatcher
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._deletions = deletions
        self._polls = polls
        self._clock = clock
        self.lengths = QueueLengths(dispatcher.table, store, offsets, clock)
        self._appender: Appender | None = None
        self._leaving: dict[str, str] = {}
        self._departure = asyncio.Event()
        self._letting_go: asyncio.Task[None] | None = None
        self._may_have_orphans = False

    def load(self) -> None:
        """Take in the routes, and let go of queues that are not declared (any more). Raises what the store raises.

        Where some routes are not confirmed yet, a sweep looks for such queues once they are.
        """
        self.dispatcher.follow()
        self._may_have_orphans = not self.dispatcher.is_complete
        orphans = [] if self._may_have_orphans else self._list_orphans()
        if orphans:
            self._offsets.forget_topics(set(orphans))
            self._offsets.write_changes()
            self._deletions.write(orphans)
            self._store.delete_topics(orphans)

    def start(self, appender: Appender) -> None:
        """Choose the light queues of what the appender writes, and take back bindings of queues that are gone."""
        self._appender = appender
        appender.dispatcher = self.dispatcher
        self.dispatcher.on_removed = self._note_removed
        self.dispatcher.choose = self.lengths.leave_out_full
        undeclared = self.dispatcher.table.list_undeclared()
        if undeclared:
            self._take_back([binding_key(name, each) for name in undeclared for each in self._binding_ids(name)])

    def find(self, stored_name: str) -> TopicConfig | None:
        """The light queue as a topic of one queue that nobody writes; None if none of that stored name is declared."""
        if not is_light_queue(stored_name) or self.dispatcher.table.find(light_name_of(stored_name)) is None:
            return None
        return TopicConfig(stored_name, read_queues=1, write_queues=0, permission=Permission.READ)

    def config(self, stored_name: str) -> LightQueueConfig | None:
        """How the light queue of that stored name was declared, or None."""
        return self.dispatcher.table.find(light_name_of(stored_name))

    def list_queues(self) -> Iterator[tuple[str, LightQueueConfig]]:
        """The stored names of all light queues, and how they were declared."""
        table = self.dispatcher.table
        for name in table:
            config = table.find(name)
            assert config is not None
            yield light_queue(name), config

    def group_for(self, stored_name: str, group: str) -> GroupConfig:
        """The group that reads the light queue, with the settings that it was given or those for such a queue.

        Whatever the settings say, it begins with the first message: all of them are for it. Raises TOPIC_NOT_FOUND,
        LIGHT_QUEUE_GROUP for another group, GROUP_DISABLED.
        """
        config = self.config(stored_name)
        if config is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"There is no light queue {stored_name[:200]!r}.")
        if config.group != group:
            raise NameRefused(
                "LIGHT_QUEUE_GROUP",
                f"The light queue {stored_name!r} is read by the group {config.group!r}, not by {group[:200]!r}.",
            )
        # A group that somebody made by the name of all sessions' group must not decide over other clients' messages.
        found = None if config.kind == SESSION_KIND else self._groups.find(group)
        if found is None:
            return _default_group(config)
        if not found.enabled:
            raise NameRefused("GROUP_DISABLED", f"The consumer group {group!r} is switched off.")
        return (
            found if found.first_position is FirstPosition.FIRST else replace(found, first_position=FirstPosition.FIRST)
        )

    def queues_of(self, group: str) -> list[str]:
        """The stored names of the light queues that the group reads; none of sessions."""
        return list(map(light_queue, self.dispatcher.table.queues_of(group)))

    def groups(self) -> Iterator[GroupConfig]:
        """The groups of AMQP queues and shared subscriptions, with the settings that hold where they have no others."""
        for group in self.dispatcher.table.groups():
            if (found := self.find_group(group)) is not None:
                yield found

    def find_group(self, group: str) -> GroupConfig | None:
        """One of them; None for a group that reads no such light queue."""
        names = self.dispatcher.table.queues_of(group)
        config = self.dispatcher.table.find(names[0]) if names else None
        return None if config is None else _default_group(config)

    async def admit(self, messages: Iterable[OutgoingMessage]) -> None:
        """Wait until records of the routes may be written: nothing of a name that they declare is being let go.

        Raises ILLEGAL_ROUTE, ILLEGAL_TOPIC, ILLEGAL_GROUP, LIGHT_QUEUE_QUOTA_EXCEEDED.
        """
        records = self.dispatcher.check([*messages])
        await self.await_deletions({record.name for record in records if record.value is not None})

    async def await_deletions(self, names: Collection[str]) -> None:
        """Return when nothing of light queues of these names is left from before."""
        while not self._leaving.keys().isdisjoint(names):
            await self._departure.wait()

    async def sweep(self) -> None:
        """Take back the light queues whose time is over, `MAX_AT_ONCE` of them. Raises what storing raises."""
        if self._may_have_orphans and self.dispatcher.is_complete:
            self._may_have_orphans = False
            for stored_name in self._list_orphans():
                self._leave(light_name_of(stored_name), "")
        expired = []
        for name in self.dispatcher.table.find_expired(self._clock.now_ms()):
            expired.append(name)
            if len(expired) >= MAX_AT_ONCE:
                break
        if expired:
            assert self._appender is not None
            await self._appender.append_many(_tombstones(list(map(queue_key, expired))))
            _log.info("%d light queues are expired, %s is the first of them.", len(expired), expired[0])

    async def close(self) -> None:
        """End what is under way; the next start lets go of what is left."""
        if self._letting_go is not None:
            self._letting_go.cancel()
            await asyncio.gather(self._letting_go, return_exceptions=True)
            self._letting_go = None

    def _binding_ids(self, name: str) -> list[str]:
        return self.dispatcher.table.binding_ids(name)

    def _take_back(self, keys: list[str]) -> None:
        """Write that the routes of these keys do not count any more."""
        assert self._appender is not None
        try:
            self._appender.append_then(_tombstones(keys), lambda _places, error: _note_error(error))
        except MillstreamError as error:
            _note_error(error)

    def _note_removed(self, name: str, config: LightQueueConfig, binding_ids: list[str]) -> None:
        if binding_ids:
            self._take_back([binding_key(name, each) for each in binding_ids])
        stored_name = light_queue(name)
        self._polls.wake_topic(stored_name)
        has_ledger = self._offsets.ledger(config.group, stored_name, LIGHT_QUEUE_NUMBER) is not None
        if not has_ledger and not self._store.holds(stored_name, LIGHT_QUEUE_NUMBER):
            return
        self._leave(name, config.group)

    def _list_orphans(self) -> list[str]:
        """The stored names of light queues that have entries and are not declared."""
        return [name for name in self._store.topics if is_light_queue(name) and self.config(name) is None]

    def _leave(self, name: str, group: str) -> None:
        """Let what is left of a light queue go; a blank group stands for whichever has a ledger there."""
        self._leaving[name] = group
        if self._letting_go is None:
            self._letting_go = asyncio.get_running_loop().create_task(self._let_go_all())

    async def _let_go_all(self) -> None:
        try:
            while self._leaving:
                await asyncio.sleep(_GATHER_S)
                names = [*self._leaving][:MAX_AT_ONCE]
                try:
                    await self._let_go(names)
                except MillstreamError as error:
                    _log.error("Light queues that were taken back stay until the next start: %s", error)
                for name in names:
                    del self._leaving[name]
                self._departure.set()
                self._departure = asyncio.Event()
        finally:
            self._letting_go = None

    async def _let_go(self, names: Collection[str]) -> None:
        stored = [light_queue(name) for name in names if self.dispatcher.table.find(name) is None]
        groups = self._leaving
        self._offsets.forget_queues([(groups[name], light_queue(name), LIGHT_QUEUE_NUMBER) for name in names])
        if unknown := {light_queue(name) for name in names if not groups[name]}:
            self._offsets.forget_topics(unknown)
        # On the disk before the queues go: a light queue of that name must not inherit offsets after a crash.
        await self._offsets.write_changes_in_turns()
        self._deletions.write(stored, durable=False)
        await asyncio.to_thread(self._store.flush_log)
        await asyncio.to_thread(self._store.delete_topics, stored)


def _default_group(config: LightQueueConfig) -> GroupConfig:
    # A session or queue that is given up is what ends redelivery there, not a count of attempts.
    if config.kind == "share":
        return GroupConfig(config.group)
    return GroupConfig(config.group, max_attempts=MAX_GROUP_ATTEMPTS)


def _tombstones(keys: list[str]) -> list[PendingRecord]:
    return [PendingRecord(OutgoingMessage(ROUTES_TOPIC, b"", {KEYS: key}), _QUEUE_OF_ROUTES) for key in keys]


def _note_error(error: BaseException | None) -> None:
    if error is not None:
        _log.warning("Bindings of light queues that are gone are taken back at the next start: %s", error)
