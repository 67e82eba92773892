"""Merges of a broker's cold objects: decided in the event loop, done in the thread that uploads.

In two phases, as uploads: a row without objects, then one with all of them that replaces the rows that were merged.
Whatever is killed in between is begun anew. The objects that nobody finds any more stay for a while, as all that are
removed do, for readers who hold the map as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from millstream.broker.cold_topics import ColdTopics, run_in_turns
from millstream.model.clock import Clock
from millstream.tiered.cold_map import (
    ColdMap,
    ColdObject,
    ColdStretch,
    commit_stretch,
    drop_topic,
    release_objects,
)
from millstream.tiered.cold_work import ColdWork, StretchName
from millstream.tiered.merge_plan import MergePlan, MergePlanner
from millstream.tiered.merging import ObjectUnreadable
from millstream.tiered.work_progress import WorkProgress

__all__ = ["ColdMerges"]

MERGE_INTERVAL_S: Final = 60.0
"""Seconds between two looks at whether cold objects are to be merged, where nothing is left to merge at once."""

_log = logging.getLogger(__name__)


class RowKeeper(Protocol):
    """Who keeps the rows as state of the broker, and its objects."""

    def write(self, rows: Iterable[tuple[str, ColdStretch | None]]) -> None:
        """Write the rows, and let readers find what they say."""
        ...

    async def drop_begun(self) -> None:
        """Delete what was begun and did not end."""
        ...


class ColdMerges:
    """Merges of one broker while it leads. `merge_due` is called by turns with its uploads, never at the same time.

    `new_name` makes the name of a row that begins at a log offset, and `whose` says whose it is; `may_join` tells
    whether rows that follow one another may become one.
    """

    def __init__(
        self,
        cold: ColdMap,
        keeper: RowKeeper,
        work: ColdWork,
        thread: Executor,
        clock: Clock,
        *,
        new_name: Callable[[int], str],
        whose: Callable[[str], StretchName],
        topics: ColdTopics,
        may_join: Callable[[Sequence[ColdStretch]], bool],
    ) -> None:
        self.merges = self.puts = self.bytes_written = self.reads = self.bytes_read = 0
        """Since the start; the reads are requests, also those of merges that failed."""
        self._cold, self._keeper, self._work, self._thread, self._clock = cold, keeper, work, thread, clock
        self._new_name, self._whose, self._topics, self._may_join = new_name, whose, topics, may_join
        self._planner = MergePlanner(cold, may_join)
        self._refused: set[str] = set()
        self._looked_s: float | None = None

    async def merge_due(self) -> bool:
        """Merge some rows if it is time; whether they are merged. Raises ObjectStoreDenied, ObjectStoreAway."""
        now_s = asyncio.get_running_loop().time()
        if self._looked_s is not None and now_s - self._looked_s < MERGE_INTERVAL_S:
            return False
        await self._keeper.drop_begun()
        self._release()
        steps = self._planner.find(
            self._clock.now_ms(), self._topics.find_lifetimes(), self._topics.keep_ms, self._refused
        )
        plan = await run_in_turns(steps)
        if plan is None:
            self._looked_s = now_s
            return False
        self._looked_s = None
        return await self._merge(plan)

    async def _merge(self, plan: MergePlan) -> bool:
        first = plan.first
        name = self._new_name(first.log_begin)
        row = ColdStretch(
            first.epoch, first.log_begin, plan.log_end, generation=first.generation + 1, replaces=tuple(plan.rows)
        )
        self._keeper.write([(name, row)])
        classes = await self._topics.classes_of({part.topic for one in plan.rewritten for part in one.parts})
        loop = asyncio.get_running_loop()
        progress = WorkProgress()
        try:
            merged = await loop.run_in_executor(
                self._thread, self._work.merge, self._whose(name), row, plan.rewritten, classes, progress
            )
        except ObjectUnreadable as error:
            # They stay as they are until the next start: readers are led past what is damaged, as before.
            self._refused |= {one for one, source in plan.rows.items() if error.key in _keys_of(source)}
            _log.error("Cold messages are not merged, since an object of theirs cannot be read: %s", error)
            return False
        finally:
            self.reads += progress.requests
            self.bytes_read += progress.bytes_read
        if not await self._commit(name, plan, row, merged):
            # Some of it was removed or copied meanwhile: the begun row goes as after a crash.
            return False
        self.merges += 1
        self.puts += len(merged)
        self.bytes_written += sum(one.size_bytes for one in merged)
        return True

    def _finish(self, plan: MergePlan, row: ColdStretch, merged: Sequence[ColdObject]) -> ColdStretch | None:
        """The merged row as its sources are now; None where they are others than they were."""
        now = {name: self._cold.rows.get(name) for name in plan.rows}
        for name, before in plan.rows.items():
            found = now[name]
            if found is None or _keys_of(found) != _keys_of(before):
                return None
        if not self._may_join([*plan.rows.values()]):
            return None
        present = {one.key: one for found in now.values() if found is not None for one in found.objects or ()}
        topics = {part.topic for one in present.values() for part in one.parts}
        row = commit_stretch(row, (*merged, *(present[one.key] for one in plan.carried)))
        for topic in {part.topic for one in merged for part in one.parts} - topics:
            # It was deleted meanwhile, and its messages are nobody's any more.
            row = drop_topic(row, topic, self._clock.now_ms())
        return row

    async def _commit(self, name: str, plan: MergePlan, row: ColdStretch, merged: Sequence[ColdObject]) -> bool:
        """Have readers find the merged row; whether that is done."""
        while True:
            sources = {source: self._cold.rows.get(source) for source in plan.rows}
            done = self._finish(plan, row, merged)
            if done is None:
                return False
            await run_in_turns(self._cold.prepare(name, done))
            # Topics may have been deleted meanwhile.
            is_same = all(self._cold.rows.get(source) is before for source, before in sources.items())
            if is_same and self._may_join([*plan.rows.values()]):
                break
        self._keeper.write([(name, done)])
        await run_in_turns(self._cold.give_back())
        self._release()
        return True

    def _release(self) -> None:
        """Have what was replaced go, also what a crash behind a merge left of it."""
        kept, now_ms = self._cold.find_unreleased(), self._clock.now_ms()
        self._keeper.write([(name, release_objects(self._cold.rows[name], kept[name], now_ms)) for name in kept])


def _keys_of(row: ColdStretch) -> set[str]:
    return {one.key for one in row.objects or ()}
