"""The tables of a case, drawn from a seed: rows out of order, late rows, NULLs, equal times, rows that change."""

from __future__ import annotations

import datetime
from random import Random
from typing import Final

from differential.cases import Arrival, Source

__all__ = ["SOURCES", "draw_arrivals", "draw_cuts"]

_APPENDED: Final = (("id", "INT"), ("k", "STRING"), ("v", "INT"), ("ts", "TIMESTAMP(3)"))
_DELAY_S: Final = 4

SOURCES: Final = (
    Source("a", _APPENDED, _DELAY_S),
    Source("b", _APPENDED, _DELAY_S),
    Source("c", (("id", "INT NOT NULL"), *_APPENDED[1:]), _DELAY_S, key="id"),
    Source("r", (("k", "STRING NOT NULL"), ("v", "INT"), ("ts", "TIMESTAMP(3)")), _DELAY_S, key="k"),
)
"""`a` and `b` get rows, rows of `c` change and go, `r` has versions by `k`."""

_BEGIN: Final = datetime.datetime(2026, 1, 1)
_KEYS: Final = ("x", "x", "y", "y", "z", None)


def draw_arrivals(random: Random, tables: set[str], *, has_late: bool) -> tuple[Arrival, ...]:
    """Rows for the tables. Without `has_late` none comes behind the watermark of its table."""
    clocks = {name: _Clock(random, has_late=has_late) for name in sorted(tables)}
    live: dict[str, dict[object, tuple[object, ...]]] = {"c": {}, "r": {}}
    arrivals = []
    for number in range(random.randint(5, 9) * max(len(tables), 1) + random.randint(0, 6)):
        name = random.choice(sorted(tables))
        time = clocks[name].next()
        if name == "c":
            arrivals.append(_change(random, live["c"], number, time))
        elif name == "r":
            arrivals.append(_version(random, live["r"], time))
        else:
            arrivals.append(Arrival(name, (number, random.choice(_KEYS), _value(random), time)))
    return tuple(arrivals)


def draw_cuts(random: Random, count: int, *, has_late: bool) -> tuple[int, ...]:
    """Where micro-batches end: behind each row where some are late, or for a look at every change."""
    if has_late or random.random() < 0.3:
        return tuple(range(1, count))
    return tuple(sorted(random.sample(range(1, count), min(count - 1, random.randint(0, 4)))))


class _Clock:
    """The times of one table: they go on, stand still, or step back."""

    def __init__(self, random: Random, *, has_late: bool) -> None:
        self._random = random
        self._newest_ms = random.randint(0, 5) * 1000
        self._oldest_step_ms = (_DELAY_S + 6) * 1000 if has_late else _DELAY_S * 1000 - 1

    def next(self) -> str:
        random = self._random
        at_ms = self._newest_ms
        match random.randint(0, 5):
            case 0 | 1:
                back_ms = random.randint(0, self._oldest_step_ms // 500) * 500
                at_ms = max(0, self._newest_ms - min(back_ms, self._oldest_step_ms))
            case 2:
                pass
            case _:
                at_ms += random.choice((1, 500, 1000, 1000, 2000, 3000, 7000))
        self._newest_ms = max(self._newest_ms, at_ms)
        return (_BEGIN + datetime.timedelta(milliseconds=at_ms)).isoformat(" ", "milliseconds")


def _value(random: Random) -> int | None:
    return None if random.random() < 0.15 else random.randint(0, 9)


def _change(random: Random, live: dict[object, tuple[object, ...]], number: int, time: str) -> Arrival:
    """A row of `c` comes, changes or goes."""
    kind = random.random()
    if not live or kind < 0.5:
        row = (number, random.choice(_KEYS), _value(random), time)
        live[number] = row
        return Arrival("c", row)
    key = random.choice(list(live))
    before = live[key]
    if kind < 0.8:
        live[key] = (key, random.choice(_KEYS), _value(random), time)
        return Arrival("c", live[key], before)
    del live[key]
    return Arrival("c", None, before)


def _version(random: Random, live: dict[object, tuple[object, ...]], time: str) -> Arrival:
    """A version of a row of `r`."""
    key = random.choice(("x", "y", "z"))
    before = live.get(key)
    live[key] = (key, _value(random), time)
    return Arrival("r", live[key], before)
