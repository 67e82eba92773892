"""Our stateful operators without Spark: processor time of a row, and what they write and keep."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.grouping import Grouper
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.operator import START_OF_TIME_US, BatchTimes, Changes, Operator, OperatorOutput, Row
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.operators.patterns.matcher import Matcher
from millstream.streams.operators.patterns.navigation import Formula, Navigation
from millstream.streams.operators.patterns.program import program_of
from millstream.streams.operators.patterns.search import PatternSpec
from millstream.streams.operators.ranking import Ranker
from millstream.streams.operators.state import OperatorState
from millstream.streams.operators.windows.window_times import Hopping
from millstream.streams.operators.windows.windowing import Windower
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.patterns import Quantified, Variable
from millstream.streams.plan.patterns import Sequence as Parts
from millstream.streams.plan.types import BIGINT

__all__ = ["COUNT", "OPERATORS", "SUM", "measure_operators"]

_KEYS = 10_000
_ROWS = 100_000
_ROWS_PER_TURN = 20_000
_BUCKETS = 8
_DELAY_US = 100_000
SUM = AggregateSpec("SUM", (2,), BIGINT, BIGINT)
COUNT = AggregateSpec("COUNT", (), None, BIGINT)
_TIME = (OrderColumn(1),)


def _match() -> Operator:
    """Two rows or more above 900 and one below 100: few rows begin a match, as in detection."""
    pattern = Parts((Quantified(Variable("A"), 2, None), Variable("B")))
    spec = PatternSpec(program_of(pattern), (("A", 3), ("B", 4)), within_us=10_000_000)
    price = Column("$0", BIGINT)
    return Matcher((0,), _TIME, spec, (Formula(price, (Navigation("last", 2, "A"),)),), time=1)


OPERATORS: dict[str, Callable[[], Operator]] = {
    "top-10": partial(
        Ranker, (0,), (OrderColumn(2, ascending=False),), "ROW_NUMBER", 1, 10, ranked=False, changing=False
    ),
    "top-1": partial(
        Ranker, (0,), (OrderColumn(1, ascending=False),), "ROW_NUMBER", 1, 1, ranked=False, changing=False
    ),
    "over-rows": partial(StreamingOver, 3, (0,), _TIME, (SUM, COUNT), OverFrame("rows", 10), time=1),
    "over-unbounded": partial(StreamingOver, 3, (0,), _TIME, (SUM, COUNT), OverFrame("range"), time=1),
    "count-distinct": partial(
        Grouper, 1, (AggregateSpec("COUNT", (2,), BIGINT, BIGINT, distinct=True),), changing=False
    ),
    "match": _match,
    "window": partial(Windower, 1, (COUNT, SUM), 1, Hopping(10_000_000, 10_000_000)),
}


def _rows() -> list[Row]:
    """Key, time, value, and the two conditions of the pattern; times a little out of order."""
    chance = random.Random(7)
    rows = []
    for number in range(_ROWS):
        value = chance.randrange(1000)
        at_us = 1_000_000 + number * 50 + chance.randrange(_DELAY_US)
        rows.append((chance.randrange(_KEYS), at_us, value, value > 900, value < 100))
    return rows


def _bare(make: Callable[[], Operator], rows: Sequence[Row]) -> dict[str, object]:
    """Every bucket in this process, a turn of all buckets per 20,000 rows, with its deltas."""
    operators = []
    for _ in range(_BUCKETS):
        operator, state = make(), OperatorState()
        operator.open(state)
        operators.append((operator, state))
    used_s = told = delta_bytes = 0.0
    watermark_us = START_OF_TIME_US
    for start in range(0, len(rows), _ROWS_PER_TURN):
        part = rows[start : start + _ROWS_PER_TURN]
        buckets: list[list[Row]] = [[] for _ in range(_BUCKETS)]
        for row in part:
            buckets[row[0] % _BUCKETS].append(row)
        after_us = max(row[1] for row in part) - _DELAY_US
        turn = BatchTimes(watermark_us, after_us, start)
        began_s = time.process_time()
        for (operator, state), members in zip(operators, buckets, strict=True):
            out = OperatorOutput()
            operator.process(0, Changes(members), turn, out)
            operator.advance(turn, out)
            delta_bytes += len(state.delta())
            told += len(out.rows)
        used_s += time.process_time() - began_s
        watermark_us = after_us
    snapshot = sum(len(state.snapshot()) for _, state in operators)
    return {
        "cpu_us_per_row": round(used_s / len(rows) * 1e6, 2),
        "rows_told": int(told),
        "delta_bytes_per_row": round(delta_bytes / len(rows), 1),
        "state_mib_per_million_keys": round(snapshot / _KEYS * 1e6 / 2**20, 1),
    }


def measure_operators() -> dict[str, object]:
    """Each operator over the same rows: 10,000 keys, 100,000 rows in turns of 20,000."""
    rows = _rows()
    return {name: _bare(make, rows) for name, make in OPERATORS.items()}
