"""How event time moves: the newest times of each input's queues as one task saw them, and the watermark over all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.operators.state import KeyedTable, State
from millstream.streams.operators.turn import START_OF_TIME_US

__all__ = ["Clocks", "Seen", "count_untimed", "encode", "look", "merged"]


@dataclass(slots=True)
class Seen:
    """What a task saw of one input: a tick for all of it, and the newest time less its delay of each queue.

    `untimed` are the rows whose event time is NULL.
    """

    tick_us: int | None = None
    queues: dict[str, int] = field(default_factory=dict)
    untimed: int = 0


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
    newest = pa.table(columns).group_by(["source", "queue"]).aggregate([("time_us", "max"), ("tick_us", "max")])
    for row in newest.to_pylist():
        one = seen.setdefault(row["source"], Seen())
        if row["time_us_max"] is not None:
            queue = row["queue"] or "-"
            one.queues[queue] = max(row["time_us_max"], one.queues.get(queue, row["time_us_max"]))
        if row["tick_us_max"] is not None:
            one.tick_us = max(row["tick_us_max"], one.tick_us or row["tick_us_max"])


def count_untimed(
    batch: pa.RecordBatch, seen: dict[int, Seen], timed: Collection[int], source: int | None = None
) -> None:
    """Note how many rows with a `bucket`, which are data, have no `time_us`, of sources that are `timed`."""
    times = batch.column("time_us")
    if not timed or times.null_count == 0:
        return
    untimed = pc.and_(pc.is_null(times), pc.is_valid(batch.column("bucket")))
    if source is not None:
        counts = {source: pc.sum(untimed).as_py() or 0}
    else:
        counted = pc.value_counts(batch.column("source").filter(untimed))
        counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    for number, count in counts.items():
        if count and number in timed:
            seen.setdefault(number, Seen()).untimed += count


def merged(parts: Iterable[bytes]) -> dict[int, Seen]:
    """What all tasks saw, by input."""
    whole: dict[int, Seen] = {}
    for part in parts:
        if not part:
            continue
        for number, seen in _DECODER.decode(part).items():
            known = whole.setdefault(number, Seen())
            if seen.tick_us is not None:
                known.tick_us = seen.tick_us if known.tick_us is None else max(known.tick_us, seen.tick_us)
            for queue, time_us in seen.queues.items():
                known.queues[queue] = max(time_us, known.queues.get(queue, START_OF_TIME_US))
            known.untimed += seen.untimed
    return whole


class Clocks:
    """The watermark of one operator: the least over its inputs, each of which is the least over its queues.

    A queue that was silent for the `idle_us` of its input, in processing time, holds nothing up until it speaks again;
    neither does an input of which nothing was heard for so long. Inputs that `idle_us` does not name wait for ever.
    """

    def __init__(self, inputs: Sequence[int], idle_us: Mapping[int, int], state: State) -> None:
        self._inputs = tuple(inputs)
        self._idle_us = idle_us
        # Of each queue its newest time, and when it was heard; of the queue "" the tick, and since when it is awaited.
        self._times: KeyedTable[tuple[int, str], tuple[int, int]] = state.table("clocks")
        self._reached: KeyedTable[str, int] = state.table("watermark")

    @property
    def watermark_us(self) -> int:
        """Where event time stands."""
        return self._reached.get("", START_OF_TIME_US) or START_OF_TIME_US

    def queues(self) -> dict[int, dict[str, int]]:
        """The newest time less its delay of each queue, by the number of its input."""
        found: dict[int, dict[str, int]] = {}
        for (number, queue), (time_us, _) in self._times.items():
            if queue:
                found.setdefault(number, {})[queue] = time_us
        return found

    def advance(self, seen: Mapping[int, Seen], now_us: int) -> int:
        """The watermark after what was seen; it never goes back."""
        for number, one in seen.items():
            for queue, time_us in one.queues.items():
                before = self._times.get((number, queue))
                newest = time_us if before is None else max(time_us, before[0])
                self._times.put((number, queue), (newest, now_us))
            if one.tick_us is not None:
                before = self._times.get((number, ""))
                if before is None or one.tick_us > before[0]:
                    self._times.put((number, ""), (one.tick_us, now_us if before is None else before[1]))
        for number in self._inputs:
            if number in self._idle_us and (number, "") not in self._times:
                self._times.put((number, ""), (START_OF_TIME_US, now_us))
        times = [self._time_of(number, now_us) for number in self._inputs]
        # Idle inputs hold nothing up; where all of them are, the furthest one tells the time.
        awake = [time_us for time_us, idle in times if not idle]
        reached = min(awake) if awake else max((time_us for time_us, _ in times), default=START_OF_TIME_US)
        if reached > self.watermark_us:
            self._reached.put("", reached)
        return self.watermark_us

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
        unheard = newest is None and tick is not None and idle_us is not None and now_us - tick[1] > idle_us
        return max(candidates, default=START_OF_TIME_US), least is None and (newest is not None or unheard)
