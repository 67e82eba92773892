"""What our stateful operators keep of a million keys: bytes on disk and memory of the process, without Spark."""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.operators import COUNT, OPERATORS, SUM
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.joins.interval_joining import IntervalJoiner
from millstream.streams.operators.joins.regular_joining import JoinShape, RegularJoiner
from millstream.streams.operators.operator import START_OF_TIME_US, BatchTimes, Changes, Operator, OperatorOutput, Row
from millstream.streams.operators.state import OperatorState
from millstream.streams.operators.windows.sessions import SessionWindower
from millstream.streams.plan.joins import JoinKind
from millstream.streams.state.group_log import GroupLog
from millstream.streams.state.state_files import LocalStateFiles

__all__ = ["measure_expiry", "measure_state"]

_KEYS = int(os.environ.get("STATE_KEYS", "200000"))
_ROWS_PER_KEY = 2
_ROWS_PER_TURN = 20_000
_EXPIRING_KEYS = (40_000, 80_000, 160_000)
_SEED = 7
_GAP_US = 3_600_000_000
_MIB = 2**20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_BY_NAME: dict[str, tuple[Callable[[], Operator], int]] = {
    "aggregate": (partial(Grouper, 1, (COUNT, SUM), changing=False), 1),
    **{name: (OPERATORS[name], 1) for name in ("count-distinct", "top-10", "top-1", "over-rows", "over-unbounded")},
    "session": (partial(SessionWindower, 1, (COUNT, SUM), 1, _GAP_US), 1),
    "window": (OPERATORS["window"], 1),
    "join": (lambda: RegularJoiner(JoinShape(JoinKind.INNER, 1, (4, 4))), 2),
    "interval-join": (lambda: IntervalJoiner(JoinShape(JoinKind.INNER, 1, (4, 4)), (0, 0), -_GAP_US, _GAP_US), 2),
    "match": (OPERATORS["match"], 1),
}
"""Each operator with the number of its inputs."""

Figures = dict[str, float]


def measure_state() -> dict[str, object]:
    """Each operator in a process of its own: STATE_KEYS keys (200,000) of two rows each, all still open at the end.

    MiB for a million keys: files of a key group as a job leaves them, one snapshot, and what the process grew by.
    """
    found: dict[str, object] = {"keys": _KEYS, "rows_per_key": _ROWS_PER_KEY}
    for name in _BY_NAME:
        command = [sys.executable, "-m", "benchmarks.state", name]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(said.stdout)
        print(name, found[name], flush=True)
    return found


def measure_expiry() -> dict[str, float]:
    """Processor seconds in which a table forgets so many keys, all of which are older than the TTL."""
    return {f"{keys}_keys_cpu_s": round(_expiry_s(keys), 3) for keys in _EXPIRING_KEYS}


def _expiry_s(keys: int) -> float:
    state = OperatorState(ttl_ms=1)
    table = state.table("values", lives=True)
    for key in range(keys):
        table.put(key, key)
    state.delta()
    state.set_clock(1_000)
    began_s = time.process_time()
    if len(table.expire()) != keys:
        raise AssertionError("some keys are still there")
    return time.process_time() - began_s


def _kept(name: str) -> Figures:
    make, inputs = _BY_NAME[name]
    chance = random.Random(_SEED)
    keys = [key for key in range(_KEYS) for _ in range(_ROWS_PER_KEY)]
    chance.shuffle(keys)
    operator, state = make(), OperatorState()
    operator.open(state)
    before_bytes, watermark_us = _resident_bytes(), START_OF_TIME_US
    with tempfile.TemporaryDirectory() as scratch:
        files = GroupLog(LocalStateFiles(Path(scratch)), range(1), 1)
        for number, start in enumerate(range(0, len(keys), _ROWS_PER_TURN)):
            rows = list(_rows(keys, start, chance))
            turn, out = BatchTimes(watermark_us, rows[-1][1], number), OperatorOutput()
            watermark_us = turn.watermark_us
            operator.process(number % inputs, Changes(rows), turn, out)
            operator.advance(turn, out)
            files.keep(
                number, {0: state.delta()}, lambda group: b"" if group < 0 else state.snapshot(), [0], shared=b""
            )
        disk_bytes = sum(file.stat().st_size for file in Path(scratch).iterdir())
    del rows, out
    gc.collect()
    memory_bytes = _resident_bytes() - before_bytes
    sizes = {"disk": disk_bytes, "snapshot": len(state.snapshot()), "memory": memory_bytes}
    return {f"{what}_mib_per_million_keys": round(size / _KEYS * 1e6 / _MIB, 1) for what, size in sizes.items()}


def _rows(keys: list[int], start: int, chance: random.Random) -> Iterator[Row]:
    """The rows of a turn, as in the bench of operators: key, time, value, and the two conditions of the pattern."""
    for number in range(start, min(start + _ROWS_PER_TURN, len(keys))):
        value = chance.randrange(1000)
        yield keys[number], 1_000_000 + number, value, value > 900, value < 100


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


if __name__ == "__main__":
    print(json.dumps(_kept(sys.argv[1])))
