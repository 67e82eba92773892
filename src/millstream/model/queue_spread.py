"""Which broker stores which queue of a static topic: evenly, and with as few moves as that takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["moves", "shares", "spread"]


def shares(queues: int, brokers: Sequence[str], present: Mapping[str, int]) -> dict[str, int]:
    """How many of so many queues each broker stores; one more for those that have most already."""
    least, over = divmod(queues, len(brokers))
    ranked = sorted(brokers, key=lambda name: (-present.get(name, 0), name))
    return {name: least + (position < over) for position, name in enumerate(ranked)}


def spread(numbers: Iterable[int], brokers: Sequence[str], present: Mapping[str, int]) -> dict[int, str]:
    """A broker for each new queue: the one that has the fewest by then, the first by name of several."""
    counts = {name: present.get(name, 0) for name in brokers}
    found = {}
    for number in numbers:
        name = min(counts, key=lambda broker: (counts[broker], broker))
        found[number] = name
        counts[name] += 1
    return found


def moves(leaders: Mapping[int, str], brokers: Sequence[str]) -> dict[int, str]:
    """The queues that have to move so that these brokers share all of them evenly, and where to."""
    present: dict[str, int] = {}
    for name in leaders.values():
        present[name] = present.get(name, 0) + 1
    left = shares(len(leaders), brokers, present)
    moving = []
    for number, name in sorted(leaders.items()):
        if left.get(name, 0) > 0:
            left[name] -= 1
        else:
            moving.append(number)
    places = [name for name in sorted(left) for _ in range(left[name])]
    return dict(zip(moving, places, strict=True))
