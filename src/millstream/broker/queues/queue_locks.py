"""Locks that give one client of a group exclusive use of a queue, so that messages are consumed in order.

RocketMQ's ordered consumers share queues among themselves, and consume one only while they hold its lock. They renew
it every 20 s and trust it for 30 s. Pure: time is monotonic seconds that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["LOCK_LIMIT_S", "MAX_LOCKS", "LockedQueue", "QueueLocks"]

LOCK_LIMIT_S: Final = 60.0
"""Seconds for which a queue is locked unless its client says so again."""

MAX_LOCKS: Final = 100_000
"""Queues of all groups that are locked at most; over it a new lock is not granted."""


class LockedQueue(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class _Lock(NamedTuple):
    client_id: str
    until_s: float


class QueueLocks:
    """The locks of all groups."""

    def __init__(self, *, limit: int = MAX_LOCKS) -> None:
        self._limit = limit
        self._groups: dict[str, dict[LockedQueue, _Lock]] = {}
        self._count = 0
        self._next_sweep_s = 0.0

    def __len__(self) -> int:
        """Locks that are kept, those that have expired lately among them."""
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[LockedQueue], now_s: float) -> list[LockedQueue]:
        """Lock what no other client of the group holds; those of the queues that the client holds now."""
        self._sweep(now_s)
        granted = []
        for queue in queues:
            held = self._groups.get(group, {}).get(queue)
            if held is not None and held.client_id != client_id and now_s < held.until_s:
                continue
            if held is None:
                if self._count >= self._limit:
                    continue
                self._count += 1
            self._groups.setdefault(group, {})[queue] = _Lock(client_id, now_s + LOCK_LIMIT_S)
            granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> None:
        """Give up queues; those that the client does not hold stay as they are."""
        locks = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if queue in locks and locks[queue].client_id == client_id])

    def release(self, group: str, client_id: str) -> None:
        """Give up all that the client holds, as when it is gone."""
        locks = self._groups.get(group, {})
        self._drop(group, [queue for queue, lock in locks.items() if lock.client_id == client_id])

    def is_ordered(self, group: str, now_s: float) -> bool:
        """Whether a client of the group holds a lock, as in a group that consumes in order."""
        return any(now_s < lock.until_s for lock in self._groups.get(group, {}).values())

    def _sweep(self, now_s: float) -> None:
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + LOCK_LIMIT_S
        for group, locks in [*self._groups.items()]:
            self._drop(group, [queue for queue, lock in locks.items() if lock.until_s <= now_s])

    def _drop(self, group: str, queues: Iterable[LockedQueue]) -> None:
        locks = self._groups.get(group, {})
        for queue in queues:
            if locks.pop(queue, None) is not None:
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)
