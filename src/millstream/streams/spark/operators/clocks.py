"""How event time moves: the newest times of each input's queues as one task saw them, and the watermark over all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.operators.operator import START_OF_TIME_US
from millstream.streams.operators.state import KeyedTable, OperatorState
from millstream.streams.spark.source.rows import END_OF_TIME_MS, WAKE_TIME_MS

__all__ = [
    "CLOCK_TABLES",
    "END_TICK_US",
    "IDLE_TICK_US",
    "Clocks",
    "Seen",
    "count_untimed",
    "encode",
    "look",
    "merge_seen",
]

END_TICK_US: Final = END_OF_TIME_MS * 1000
"""A tick this late is the end of time."""

_FIRST_TICK_US: Final = WAKE_TIME_MS * 1000
"""Where event time goes on at least, so that there is a tick that says so."""

_WITHOUT_ENDS: Final = "without ends"

IDLE_TICK_US: Final = -62_135_596_799_000_000
"""The tick of an operator all of whose inputs are idle: a second of the year 1, behind the ticks that wake jobs."""


_CLOCKS, _WATERMARK, _ENDED, _IDLE = "clocks", "watermark", "ended", "idle"

CLOCK_TABLES: Final = frozenset({_CLOCKS, _WATERMARK, _ENDED, _IDLE})
"""The tables that `Clocks` keeps in a state."""


@dataclass(slots=True)
class Seen:
    """What a task saw of one input: a tick for all of it, whether one said that it is idle, and the newest time less
    its delay of each queue.

    `untimed` are the rows whose event time is NULL.
    """

    tick_us: int | None = None
    queues: dict[str, int] = field(default_factory=dict)
    is_idle: bool = False
    untimed: int = 0

    def saw(self, tick_us: int) -> None:
        """Take a tick in."""
        if tick_us == IDLE_TICK_US:
            self.is_idle = True
        else:
            self.tick_us = tick_us if self.tick_us is None else max(tick_us, self.tick_us)


_DECODER = msgspec.msgpack.Decoder(dict[int, Seen])


def encode(seen: Mapping[int, Seen]) -> bytes:
    """The form that travels; blank for nothing."""
    return msgspec.msgpack.encode(dict(seen)) if seen else b""


def look(batch: pa.RecordBatch, seen: dict[int, Seen], source: int | None = None) -> None:
    """Note the newest time of each queue, and ticks: rows of `queue`, `time_us` and `tick_us`.

    `source` is the number of the input of all rows; None: a column `source` tells it for each.
    """
    times, ticks = batch.column("time_us"), batch.column("tick_us")
    if times.null_count == len(times) and ticks.null_count == len(ticks):
        return
    sources = batch.column("source") if source is None else pa.repeat(pa.scalar(source, pa.int32()), batch.num_rows)
    columns = {"source": sources, "queue": batch.column("queue"), "time_us": times, "tick_us": ticks}
    newest = (
        pa.table(columns)
        .group_by(["source", "queue"])
        .aggregate([("time_us", "max"), ("tick_us", "max"), ("tick_us", "min")])
    )
    for row in newest.to_pylist():
        one = seen.setdefault(row["source"], Seen())
        if row["time_us_max"] is not None:
            queue = row["queue"] or "-"
            one.queues[queue] = max(row["time_us_max"], one.queues.get(queue, row["time_us_max"]))
        for tick_us in (row["tick_us_min"], row["tick_us_max"]):
            if tick_us is not None:
                one.saw(tick_us)


def count_untimed(
    batch: pa.RecordBatch, seen: dict[int, Seen], timed: Collection[int], source: int | None = None
) -> None:
    """Note how many rows with a `key_group`, which are data, have no `time_us`, of sources that are `timed`."""
    times = batch.column("time_us")
    if not timed or times.null_count == 0:
        return
    untimed = pc.and_(pc.is_null(times), pc.is_valid(batch.column("key_group")))
    if source is not None:
        counts = {source: pc.sum(untimed).as_py() or 0}
    else:
        counted = pc.value_counts(batch.column("source").filter(untimed))
        counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    for number, count in counts.items():
        if count and number in timed:
            seen.setdefault(number, Seen()).untimed += count


def merge_seen(parts: Iterable[bytes]) -> dict[int, Seen]:
    """What all tasks saw, by input."""
    whole: dict[int, Seen] = {}
    for part in parts:
        if not part:
            continue
        for number, seen in _DECODER.decode(part).items():
            known = whole.setdefault(number, Seen())
            known.is_idle |= seen.is_idle
            if seen.tick_us is not None:
                known.saw(seen.tick_us)
            for queue, time_us in seen.queues.items():
                known.queues[queue] = max(time_us, known.queues.get(queue, START_OF_TIME_US))
            known.untimed += seen.untimed
    return whole


def _least(times: Iterable[tuple[int, bool]]) -> int:
    """The watermark over inputs of those times, each with whether it is idle."""
    times = list(times)
    awake = [time_us for time_us, idle in times if not idle]
    # Idle inputs hold nothing up; where all of them are, the furthest one tells the time.
    return min(awake) if awake else max((time_us for time_us, _ in times), default=START_OF_TIME_US)


class Clocks:
    """The watermark of one operator: the least over its inputs, each of which is the least over its queues.

    A queue that was silent for the `idle_us` of its input, in processing time, holds nothing up until it speaks again;
    neither does an input of which nothing was heard for so long. Inputs that `idle_us` does not name wait for ever, but
    for operators that say themselves that all of their inputs are idle.

    A tick at the end of time ends an input, an earlier one behind it lets it go on. Where all had ended, event time
    goes on from where their queues had brought it.
    """

    def __init__(self, inputs: Sequence[int], idle_us: Mapping[int, int], state: OperatorState) -> None:
        self._inputs = tuple(inputs)
        self._idle_us = idle_us
        # Of each queue its newest time, and when it was heard; of the queue "" the tick, and since when it is awaited.
        self._times: KeyedTable[tuple[int, str], tuple[int, int]] = state.table(_CLOCKS)
        # The watermark, and beside it while inputs have ended the one that there would be without that.
        self._reached: KeyedTable[str, int] = state.table(_WATERMARK)
        self._ended: KeyedTable[int, bool] = state.table(_ENDED)
        self._idle: KeyedTable[int, bool] = state.table(_IDLE)
        self.are_idle = False
        """Whether all inputs were idle at the last `advance`."""

    @property
    def watermark_us(self) -> int:
        """Where event time stands."""
        return self._stands("")

    def resume(self, seen: Mapping[int, Seen], now_us: int) -> int:
        """Let the inputs go on whose ticks say so; the watermark before what else was seen."""
        self._part_ends(now_us)
        for number, one in seen.items():
            if number not in self._ended or one.tick_us is None or one.tick_us >= END_TICK_US:
                continue
            self._ended.delete(number)
            if self.watermark_us >= END_TICK_US:
                self._reached.put("", max(self._stands(_WITHOUT_ENDS), _FIRST_TICK_US))
            if not len(self._ended):
                self._reached.delete(_WITHOUT_ENDS)
        return self.watermark_us

    def queues(self) -> dict[int, dict[str, int]]:
        """The newest time less its delay of each queue, by the number of its input."""
        found: dict[int, dict[str, int]] = {}
        for (number, queue), (time_us, _) in self._times.items():
            if queue:
                found.setdefault(number, {})[queue] = time_us
        return found

    def advance(self, seen: Mapping[int, Seen], now_us: int) -> int:
        """The watermark after what was seen; it goes back only where event time had ended and goes on."""
        before_us = self.resume(seen, now_us)
        for number, one in seen.items():
            for queue, time_us in one.queues.items():
                before = self._times.get((number, queue))
                newest = time_us if before is None else max(time_us, before[0])
                self._times.put((number, queue), (newest, now_us))
            if one.is_idle:
                self._idle.put(number, True)
            elif one.tick_us is not None:
                self._idle.delete(number)
            if one.tick_us is not None and one.tick_us >= END_TICK_US:
                self._ended.put(number, True)
            elif one.tick_us is not None:
                before = self._times.get((number, ""))
                if before is None or one.tick_us > before[0]:
                    self._times.put((number, ""), (one.tick_us, now_us if before is None else before[1]))
        for number in self._inputs:
            if number in self._idle_us and (number, "") not in self._times:
                self._times.put((number, ""), (START_OF_TIME_US, now_us))
        times = {number: self._time_of(number, now_us) for number in self._inputs}
        if len(self._ended):
            known_us = self._stands(_WITHOUT_ENDS if _WITHOUT_ENDS in self._reached else "")
            self._reached.put(_WITHOUT_ENDS, max(known_us, _least(times.values())))
            times.update({number: (END_TICK_US, False) for number, _ in self._ended.items()})
        self.are_idle = bool(times) and all(is_idle for _, is_idle in times.values())
        reached = _least(times.values())
        if reached > before_us:
            self._reached.put("", reached)
        return self.watermark_us

    def _stands(self, name: str) -> int:
        return self._reached.get(name, START_OF_TIME_US) or START_OF_TIME_US

    def _part_ends(self, now_us: int) -> None:
        """Older releases kept the ends of inputs among their ticks."""
        ends = [number for number in self._inputs if (self._times.get((number, "")) or (0, 0))[0] >= END_TICK_US]
        for number in ends:
            self._times.delete((number, ""))
            self._ended.put(number, True)
        if ends:
            self._reached.put(_WITHOUT_ENDS, _least(self._time_of(number, now_us) for number in self._inputs))

    def _time_of(self, number: int, now_us: int) -> tuple[int, bool]:
        """How far an input has come, and whether all its queues are idle."""
        tick = self._times.get((number, ""))
        idle_us = self._idle_us.get(number)
        least: int | None = None
        newest: int | None = None
        for (of, queue), (time_us, heard_us) in self._times.items():
            if of != number or not queue:
                continue
            newest = time_us if newest is None else max(newest, time_us)
            if idle_us is not None and now_us - heard_us > idle_us:
                continue
            least = time_us if least is None else min(least, time_us)
        # Where all queues are idle, the newest of them stands for all.
        reached = newest if least is None else least
        candidates = [time_us for time_us in (reached, None if tick is None else tick[0]) if time_us is not None]
        if number in self._idle:
            return max(candidates, default=START_OF_TIME_US), True
        unheard = newest is None and tick is not None and idle_us is not None and now_us - tick[1] > idle_us
        return max(candidates, default=START_OF_TIME_US), least is None and (newest is not None or unheard)
