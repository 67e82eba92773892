"""The consumer groups of a broker with what their members share: request modes, queue locks, members elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millstream.broker.queues.groups import GroupRegistry
from millstream.broker.queues.queue_locks import LockedQueue, QueueLocks
from millstream.broker.queues.request_modes import RequestMode, RequestModes
from millstream.model.clock import Clock
from millstream.store.snapshot import Snapshot

__all__ = ["ConsumerGroups", "Member", "MemberSource"]

Member = tuple[str, str, str, int, str]
"""A member of a group: client id, address, language, version and protocol."""

MemberSource = Callable[[str], Iterable[Member]]
"""The members of a group by its name."""


class ConsumerGroups(GroupRegistry):
    """The groups by name, and what the members of each share.

    `locks` is the broker's own, which asks it where messages come back in order. `member_sources` are asked for the
    members of a group that the broker does not know itself, as those of a proxy.
    """

    def __init__(
        self, snapshot: Snapshot, modes: RequestModes, locks: QueueLocks, clock: Clock, *, auto_create: bool = True
    ) -> None:
        super().__init__(snapshot, auto_create=auto_create)
        self._modes = modes
        self._locks = locks
        self._clock = clock
        self.member_sources: list[MemberSource] = []

    def members_elsewhere(self, group: str) -> Iterator[Member]:
        """The members that `member_sources` know."""
        for source in self.member_sources:
            yield from source(group)

    def request_mode(self, topic: str, group: str) -> RequestMode:
        """How the group's members get the topic's messages: by pulls or pops."""
        return self._modes.get(topic, group)

    def set_request_mode(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode; see `RequestModes.put`."""
        self._modes.put(topic, group, mode)

    def lock_queues(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> list[LockedQueue]:
        """Lock what no other client of the group holds; those of the queues that the client holds now."""
        return self._locks.lock(group, client_id, queues, self._clock.monotonic_s())

    def unlock_queues(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> None:
        """Give up queues; those that the client does not hold stay as they are."""
        self._locks.unlock(group, client_id, queues)

    def release_queues(self, group: str, client_id: str) -> None:
        """Give up all that the client holds, as when it is gone."""
        self._locks.release(group, client_id)

    def is_ordered(self, group: str) -> bool:
        """Whether a client of the group holds a lock, as in a group that consumes in order."""
        return self._locks.is_ordered(group, self._clock.monotonic_s())
