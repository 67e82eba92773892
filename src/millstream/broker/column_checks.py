"""Answers to tools about the copies of a broker: whether their Parquet files are there, and which are orphans.

A file is named by a row of the broker's state, by a snapshot of its table, or by both; only what neither names is an
orphan. Positions are keys, which a tool hands back: those of copies come behind those of cold messages.
"""

from __future__ import annotations

import asyncio
from typing import Final

from millstream.broker.cold_tier import ColdTier
from millstream.broker.column_copies import REMOVED_GRACE_MS, ColumnCopies
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.cold_checks import ColdProblem, ObjectChecks, Orphan, Orphans
from millstream.tiered.columns.column_map import table_prefix, tables_prefix, unnamed_files
from millstream.tiered.columns.column_work import TableFiles
from millstream.tiered.objects import MAX_DELETED_KEYS

__all__ = ["ColumnChecks"]

VERIFIED_FILES: Final = 256
"""Parquet files that one call looks for at most; their bytes are not read."""

FILES_AT_A_TIME: Final = 4
"""Of these, how many are asked for at one time: readers of cold messages use the same threads."""

_UNREADABLE: Final = ("TABLE_REFUSED", "COLUMN_COPY_FAILED")
"""What a table answers whose catalogue or metadata is amiss: a finding, not the end of a look at all."""


class ColumnChecks:
    """Of one broker that leads; each call looks at a part."""

    def __init__(self, cold: ColdTier, copies: ColumnCopies, *, cluster: str, broker: str, clock: Clock) -> None:
        self._cold = cold
        self._copies = copies
        self._cluster = cluster
        self._broker = broker
        self._clock = clock

    def first_position(self) -> str:
        """Where a look at all copies begins; blank where this broker copies nothing."""
        return tables_prefix(self._cluster) if self._copies.work is not None else ""

    def is_position(self, after: str) -> bool:
        """Whether a tool that goes on there is among the copies."""
        return after.startswith(tables_prefix(self._cluster))

    # Files that have to be there

    async def verify(self, after: str, step: int) -> ObjectChecks:
        """See which of the next files are not there whole, each `step`-th of those of a call.

        They are those that the present snapshots of the tables name, and those that rows name, of which tables may not
        have been told yet. Raises ObjectStoreDenied, ObjectStoreAway.
        """
        topic = self._topic_behind(after)
        if topic is None:
            return ObjectChecks(0, 0, [], "")
        behind = after if after.startswith(table_prefix(self._cluster, topic)) else ""
        try:
            files, following = await self._files_to_verify(topic, behind)
        except MillstreamError as error:
            if error.name not in _UNREADABLE:
                raise
            place = table_prefix(self._cluster, topic)
            return ObjectChecks(0, 0, [ColdProblem(place, [topic], error.message)], self._end_of(topic))
        chosen = dict(list(files.items())[::step])
        problems = await self._find_problems(topic, chosen)
        return ObjectChecks(len(chosen), sum(chosen.values()), problems, following or self._end_of(topic))

    async def _files_to_verify(self, topic: str, after: str) -> tuple[dict[str, int], str]:
        """Sizes of the next files by key, in order, and where to go on within the topic; blank at its end."""
        named = await self._list_table(topic, after)
        sizes = {
            key: one.held.size_bytes
            for key, one in self._copies.map.present(topic).items()
            if one.held is not None and key > after
        }
        sizes.update((one.key, one.size_bytes) for one in named.files if one.is_current)
        known = sorted(key for key in sizes if not named.after or key <= named.after)
        keys = known[:VERIFIED_FILES]
        following = keys[-1] if len(keys) < len(known) else named.after
        return {key: sizes[key] for key in keys}, following

    async def _find_problems(self, topic: str, files: dict[str, int]) -> list[ColdProblem]:
        problems: list[ColdProblem] = []
        waiting = iter(files.items())

        async def look() -> None:
            for key, size_bytes in waiting:
                info = await self._cold.checks.head(key)
                if info is None:
                    problems.append(ColdProblem(key, [topic], "the object store does not have it"))
                elif info.size_bytes != size_bytes:
                    words = f"it has {info.size_bytes} bytes, not {size_bytes}"
                    problems.append(ColdProblem(key, [topic], words))

        async with asyncio.TaskGroup() as group:
            for _ in range(FILES_AT_A_TIME):
                group.create_task(look())
        return sorted(problems, key=lambda one: one.key)

    def _topic_behind(self, after: str) -> str | None:
        """The first topic with a copy some of which comes behind that position."""
        present = [name for name, one in self._copies.map.topics.items() if not one.is_deleted]
        # In the order of positions, not of names: "orders-old" comes before "orders/".
        topics = sorted(present, key=self._end_of)
        return next((name for name in topics if self._end_of(name) > after), None)

    def _end_of(self, topic: str) -> str:
        """A position behind all keys of the topic, and before those of the topics that follow it."""
        return f"{table_prefix(self._cluster, topic)}~"

    async def _list_table(self, topic: str, after: str) -> TableFiles:
        work = self._copies.work
        if work is None:
            # Nothing may be taken for unnamed because nobody can be asked any more.
            raise MillstreamError("COLUMN_COPY_FAILED", "This broker copies nothing, or does not do so any more.")
        if not work.keeps_tables:
            return TableFiles(())
        return await work.list_files(self._cluster, topic, after)

    # Files that need not be there

    async def collect(self, after: str, *, deletes: bool) -> Orphans:
        """Look at the next objects of copies; delete this broker's Parquet files that nothing names and are a day old.

        Raises TABLE_REFUSED, COLUMN_COPY_FAILED where it cannot be told what a table names, ObjectStoreDenied,
        ObjectStoreAway.
        """
        if deletes:
            await self._cold.check_owner()
        checks = self._cold.checks
        found = await checks.list(tables_prefix(self._cluster), after)
        before_ms = self._clock.now_ms() - REMOVED_GRACE_MS
        unnamed = unnamed_files(self._copies.map, found, self._cluster, self._broker, before_ms)
        orphans = []
        for topic, files in unnamed.items():
            named = await self._named_by_table(topic)
            orphans += [one for one in files if one.key not in named]
        if deletes and orphans:
            with self._copies.without_copies_to(one.key for one in orphans) as keys:
                await checks.delete(keys)
            orphans = [one for one in orphans if one.key in keys]
        following = found[-1].key if len(found) == MAX_DELETED_KEYS else ""
        return Orphans(len(found), [Orphan(one.key, one.size_bytes, one.modified_ms) for one in orphans], following)

    async def _named_by_table(self, topic: str) -> set[str]:
        named: set[str] = set()
        after, is_first = "", True
        while after or is_first:
            page = await self._list_table(topic, after)
            named.update(one.key for one in page.files)
            after, is_first = page.after, False
        return named
