"""How far each queue has come in event time, as operators know it: left by a worker, shown by the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from millstream.streams.operators.turn import START_OF_TIME_US
from millstream.streams.state.atomic_file import write_file

__all__ = ["QueueTimes", "TakenTimes", "TimesSpool"]

_SUFFIX = ".times"


class QueueTimes(msgspec.Struct):
    """The watermark of an operator, and the newest time less the delay of each queue by the number of its source.

    `untimed` are the rows of the micro-batch whose event time is NULL, by the number of their source.
    """

    watermark_us: int
    queues: dict[int, dict[str, int]] = {}
    untimed: dict[int, int] = {}


class TakenTimes(NamedTuple):
    """The least watermark (None before the first event time), and the queues' times by table and queue.

    `untimed` are the rows of the micro-batch whose event time is NULL, by table: as many as one operator got at most.
    """

    watermark_us: int | None = None
    queues: Mapping[tuple[str, str], int] = {}
    untimed: Mapping[str, int] = {}


_DECODER = msgspec.msgpack.Decoder(QueueTimes)


class TimesSpool:
    """The directory; a micro-batch writes one file for each operator."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def keep(self, operator: str, times: QueueTimes) -> None:
        """Leave what an operator knows after a micro-batch."""
        write_file(self._directory / f"{operator}{_SUFFIX}", msgspec.msgpack.encode(times), durable=False)

    def take(self, tables: Mapping[int, str]) -> TakenTimes:
        """What operators left of a micro-batch, over all of them; `tables` are the names of sources by number."""
        watermarks: list[int] = []
        found: dict[tuple[str, str], int] = {}
        untimed: dict[str, int] = {}
        for path in self._directory.glob(f"[!.]*{_SUFFIX}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                times = _DECODER.decode(path.read_bytes())
                watermarks.append(times.watermark_us)
                for number, queues in times.queues.items():
                    if number in tables:
                        found.update({(tables[number], queue): time_us for queue, time_us in queues.items()})
                for number, count in times.untimed.items():
                    if number in tables:
                        untimed[tables[number]] = max(count, untimed.get(tables[number], 0))
        least = min(watermarks, default=START_OF_TIME_US)
        return TakenTimes(least if least > START_OF_TIME_US else None, found, untimed)
