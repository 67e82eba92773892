"""A worker's cache of a lookup table: all of it, or recently used keys."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from millstream.streams.connectors.options import milliseconds
from millstream.streams.operators.operator import Row
from millstream.streams.spark.lookups.lookup_table import Found, LookupSpec, LookupTable

__all__ = ["KeptKeys", "KeptLimits", "MissedAgain", "WholeTable", "asked_again"]


_DEFAULT_ATTEMPTS = "3"
_DEFAULT_DELAY = "1 s"


class WholeTable:
    """All rows by key. `stamp` tells the table's version: `load` runs when it is another one, and is looked at when
    the last look is `ttl_s` ago.
    """

    def __init__(
        self,
        spec: LookupSpec,
        load: Callable[[], Sequence[Row]],
        stamp: Callable[[], Hashable],
        ttl_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._load = load
        self._stamp = stamp
        self._ttl_s = ttl_s
        self._clock = clock
        self._looked_s: float | None = None
        self._version: Hashable = None
        self._rows: dict[Row, list[Row]] = {}

    def find(self, keys: Collection[Row]) -> Found:
        """The rows of each key, as the table was at the last look."""
        now_s = self._clock()
        if self._looked_s is None or now_s - self._looked_s >= self._ttl_s:
            version = self._stamp()
            if self._looked_s is None or version != self._version:
                self._rows = self._by_key(self._load())
                self._version = version
            self._looked_s = now_s
        return {key: self._rows[key] for key in keys if key in self._rows}

    def _by_key(self, rows: Sequence[Row]) -> dict[Row, list[Row]]:
        found: dict[Row, list[Row]] = {}
        for row in rows:
            key = self._spec.key_of(row)
            # NULL equals nothing.
            if None not in key:
                found.setdefault(key, []).append(row)
        return found


class MissedAgain:
    """A table that is asked again for keys without rows, `attempts` times, `delay_s` after one another.

    The batch of rows waits meanwhile.
    """

    def __init__(
        self, table: LookupTable, attempts: int, delay_s: float, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._table = table
        self._attempts = attempts
        self._delay_s = delay_s
        self._sleep = sleep

    def find(self, keys: Collection[Row]) -> Found:
        """The rows of each key that has some in the end."""
        found = dict(self._table.find(keys))
        for _ in range(self._attempts):
            missing = [key for key in keys if key not in found]
            if not missing:
                break
            self._sleep(self._delay_s)
            found |= self._table.find(missing)
        return found


@dataclass(frozen=True, slots=True)
class KeptLimits:
    """What of the answers is kept: so many keys, so long after they were asked (`written_s`) and used (`used_s`).

    None sets no limit. `missing` keeps that a key has no rows, too.
    """

    keys: int
    written_s: float | None = None
    used_s: float | None = None
    missing: bool = True


class KeptKeys:
    """Answers of another table that are kept for a while; the keys that were used longest ago go first."""

    def __init__(
        self, table: LookupTable, limits: KeptLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:  # fmt: skip
        self._table = table
        self._limits = limits
        self._clock = clock
        self._kept: OrderedDict[Row, tuple[float, float, Sequence[Row]]] = OrderedDict()

    def find(self, keys: Collection[Row]) -> Found:
        """What is kept, and what the table says of the other keys."""
        now_s = self._clock()
        found: dict[Row, Sequence[Row]] = {}
        missing = []
        for key in keys:
            known = self._find_known(key, now_s)
            if known is None:
                missing.append(key)
            else:
                found[key] = known
        if missing:
            answered = self._table.find(missing)
            for key in missing:
                rows = answered.get(key, ())
                found[key] = rows
                if rows or self._limits.missing:
                    self._kept[key] = (now_s, now_s, rows)
            while len(self._kept) > self._limits.keys:
                self._kept.popitem(last=False)
        return {key: rows for key, rows in found.items() if rows}

    def _find_known(self, key: Row, now_s: float) -> Sequence[Row] | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        written_s, used_s, rows = kept
        limits = self._limits
        if (limits.written_s is not None and now_s - written_s >= limits.written_s) or (
            limits.used_s is not None and now_s - used_s >= limits.used_s
        ):
            del self._kept[key]
            return None
        self._kept[key] = (written_s, now_s, rows)
        self._kept.move_to_end(key)
        return rows


def asked_again(spec: LookupSpec, table: LookupTable) -> LookupTable:
    """The table, asked again for rows that are not there yet where a hint says so."""
    hints = dict(spec.hints)
    if hints.get("retry-predicate", "").lower() != "lookup_miss":
        return table
    attempts = int(hints.get("max-attempts", _DEFAULT_ATTEMPTS))
    return MissedAgain(table, attempts, milliseconds(hints.get("fixed-delay", _DEFAULT_DELAY)) / 1000)
