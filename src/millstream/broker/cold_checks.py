"""The cold tier's answers to tools: where messages lie, whether objects are intact, which are orphans.

The broker does it, which knows the rows and has the keys of access. Each call looks at a part and says where the next
one begins, so that none takes long.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from millstream.broker.queues.topics import TopicRegistry
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.administration.cold_checks import (
    ColdProblem,
    ColdQueueStatus,
    ColdStatus,
    ObjectChecks,
    Orphan,
    Orphans,
)
from millstream.store.message_store import MessageStore
from millstream.tiered.cold_map import ColdMap, ColdObject
from millstream.tiered.objects import MAX_DELETED_KEYS, ObjectInfo, ObjectNotFound, ObjectStore
from millstream.tiered.verification import find_orphans, verify_object

__all__ = ["MAX_STATUS_QUEUES", "VERIFIED_OBJECTS", "ColdChecks", "tiered_storage_off"]

_T = TypeVar("_T")

VERIFIED_OBJECTS: Final = 4
"""Objects that one call verifies at most, each of up to some 32 MiB."""

MAX_STATUS_QUEUES: Final = 10_000
"""Queues that a status names at most; of the others it says how many there are."""


class ColdChecks:
    """Looks at the map in the event loop and at the object store in a thread of `threads`."""

    def __init__(self, cold: ColdMap, objects: ObjectStore, threads: Executor, store: MessageStore) -> None:
        self._cold = cold
        self._objects = objects
        self._threads = threads
        self._store = store

    def status(self, topics: TopicRegistry, behind_bytes: int, last_error: str) -> ColdStatus:
        """What of each queue is cold. Bytes of an object with several queues are shared out by their messages."""
        found: dict[tuple[str, int], ColdQueueStatus] = {}
        for _, one in self._cold.objects:
            messages = sum(part.next_queue_offset - part.first_queue_offset for part in one.parts)
            for part in one.parts:
                own = part.next_queue_offset - part.first_queue_offset
                place = part.topic, part.queue_id
                status = found.setdefault(place, ColdQueueStatus(*place))
                status.objects += 1
                status.messages += own
                status.bytes += one.size_bytes * own // max(messages, 1)
        for (topic, queue_id), status in found.items():
            bounds = self._cold.bounds(topic, queue_id)
            assert bounds is not None
            status.first_offset, status.last_offset = bounds[0], bounds[1] - 1
            if topics.find(topic) is not None:
                status.behind_messages = max(0, self._store.max_offset(topic, queue_id) - bounds[1])
        queues = [found[place] for place in sorted(found)]
        left_out = max(0, len(queues) - MAX_STATUS_QUEUES)
        objects = sum(1 for _ in self._cold.objects)
        return ColdStatus(queues[:MAX_STATUS_QUEUES], left_out, objects, behind_bytes, last_error)

    async def verify(self, after: str, step: int) -> ObjectChecks:
        """Read the next few objects behind the key `after`, each `step`-th of all, and check them by their rows.

        Raises ObjectStoreDenied, ObjectStoreAway.
        """
        objects = sorted((one for _, one in self._cold.objects), key=lambda one: one.key)
        first = bisect_right(objects, after, key=lambda one: one.key) if after else 0
        chosen = objects[-(-first // step) * step :: step][:VERIFIED_OBJECTS]
        problems = []
        for one in chosen:
            problem = await self._in_thread(partial(self._verify, one))
            # What was removed meanwhile is no loss.
            if problem and any(found.key == one.key for _, found in self._cold.objects):
                topics = sorted({part.topic for part in one.parts})
                problems.append(ColdProblem(one.key, topics, problem))
        is_last = len(chosen) < VERIFIED_OBJECTS
        size_bytes = sum(one.size_bytes for one in chosen)
        return ObjectChecks(len(chosen), size_bytes, problems, "" if is_last else chosen[-1].key)

    async def collect(self, prefix: str, kept_prefix: str, after: str, deletes: bool, now_ms: int) -> Orphans:
        """Look at the next objects below the prefix, and delete those that no row names and that are a day old.

        Raises ObjectStoreDenied, ObjectStoreAway.
        """
        found = await self.list(prefix, after)
        orphans = [*find_orphans(self._cold, found, kept_prefix, now_ms)]
        if deletes and orphans:
            keys = [one.key for one in orphans]
            await self.delete(keys)
        following = found[-1].key if len(found) == MAX_DELETED_KEYS else ""
        told = [Orphan(one.key, one.size_bytes, one.modified_ms) for one in orphans]
        return Orphans(len(found), told, following)

    async def list(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        """The next objects below a prefix, at most MAX_DELETED_KEYS. Raises ObjectStoreDenied, ObjectStoreAway."""
        return await self._in_thread(lambda: [*islice(self._objects.list(prefix, after), MAX_DELETED_KEYS)])

    async def head(self, key: str) -> ObjectInfo | None:
        """An object without its bytes; None where there is none. Raises ObjectStoreDenied, ObjectStoreAway."""
        try:
            return await self._in_thread(lambda: self._objects.head(key))
        except ObjectNotFound:
            return None

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete at most MAX_DELETED_KEYS objects. Raises ObjectStoreDenied, ObjectStoreAway."""
        await self._in_thread(lambda: self._objects.delete(keys))

    def _verify(self, one: ColdObject) -> str:
        try:
            return verify_object(one, self._objects.get(one.key))
        except ObjectNotFound:
            return "the object store does not have it"

    async def _in_thread(self, act: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)


def tiered_storage_off() -> MillstreamError:
    """The refusal of a broker that has no object store."""
    return MillstreamError("TIERED_STORAGE_OFF", "This broker has no object store.")
