"""Which queues of a topic each member of a group gets: the same everywhere, as every broker is asked.

Pure. Members and queues are sorted by the caller's rule of order: by client id, by broker and queue.
Source of the rules: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

__all__ = ["ALL_QUEUES_OF_BROKER", "STRATEGIES", "QueuePlace", "Strategy", "allocate_pops"]

ALL_QUEUES_OF_BROKER: Final = -1
"""Stands for a queue where a member pops from whichever queue of the broker has something."""


class QueuePlace(NamedTuple):
    """One queue of a topic: the broker's name and the number there."""

    broker_name: str
    queue_id: int


Strategy = Callable[[int, int, Sequence[QueuePlace]], list[QueuePlace]]
"""The queues of the member of that number among so many."""


def _in_stretches(member: int, members: int, queues: Sequence[QueuePlace]) -> list[QueuePlace]:
    """Neighbouring queues; the first members get one more where they do not divide evenly."""
    each, more = divmod(len(queues), members)
    start = member * each + min(member, more)
    return list(queues[start : start + each + (member < more)])


def _in_turn(member: int, members: int, queues: Sequence[QueuePlace]) -> list[QueuePlace]:
    """Every so many-th queue."""
    return list(queues[member::members])


STRATEGIES: Final[dict[str, Strategy]] = {"AVG": _in_stretches, "AVG_BY_CIRCLE": _in_turn}
"""The strategies by the names that clients send."""


def allocate_pops(
    strategy: Strategy, member: int, members: int, queues: Sequence[QueuePlace], share_count: int
) -> list[QueuePlace]:
    """What a member pops from: all queues of each broker, or its own and those of `share_count` members behind it.

    A `share_count` of 0 or less, or one that covers everybody, means all. Where there are more members than queues
    several have the same one.
    """
    if share_count <= 0 or share_count >= members - 1:
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return [QueuePlace(name, ALL_QUEUES_OF_BROKER) for name in names]
    if not queues:
        return []
    if members > len(queues):
        return [queues[member % len(queues)]]
    found: dict[QueuePlace, None] = {}
    for step in range(share_count + 1):
        found.update(dict.fromkeys(strategy((member + step) % members, members, queues)))
    return list(found)
