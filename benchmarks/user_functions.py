"""The same sum as an expression of SQL, as a function of columns and as a function of rows."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.streams.functions.user_functions.user import load_user_function
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.nodes import Values
from millstream.streams.plan.types import BIGINT, Field, Schema
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.spark.translation.user_calls import UserCalls
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_user_functions"]

_ROWS = 4_000_000
_ROUNDS = 3
_NUMBER = Column("id", BIGINT)
_SCHEMA = Schema((Field("id", BIGINT),))

Figures = dict[str, object]


def measure_user_functions() -> Figures:
    """Rows a second and processor microseconds a row, the best of three rounds that take turns, on a warm session.

    Processor time is of driver, JVM and Python workers together; `rows` alone is what Spark needs to make them.
    """
    native = Call("+", (Call("*", (_NUMBER, Literal(3, BIGINT)), BIGINT), Literal(1, BIGINT)), BIGINT)
    asked: dict[str, list[Expression]] = {
        "rows": [_NUMBER],
        "expression": [native],
        "arrow": [_call("by_arrow")],
        "numpy": [_call("by_numpy")],
        "by-row": [_call("by_row")],
        "three-by-row": [_call("by_row", place) for place in range(3)],
    }
    best: dict[str, dict[str, float]] = {}
    session = start_session(SessionOptions())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for _ in range(_ROUNDS):
                for name, expressions in asked.items():
                    found = _measured(session, expressions, Path(scratch))
                    if name not in best or found["rows_per_s"] > best[name]["rows_per_s"]:
                        best[name] = found
    finally:
        session.stop()
    return {"rows": _ROWS, "load_15_min": round(os.getloadavg()[2], 1), **best}


def _call(name: str, more: int = 0) -> Call:
    found = load_user_function(name, f"benchmarks.measured_functions:{name}")
    number: Expression = _NUMBER if not more else Call("+", (_NUMBER, Literal(more, BIGINT)), BIGINT)
    return Call(found.call_name, (number,), found.result)


def _measured(session: SparkSession, expressions: list[Expression], scratch: Path) -> dict[str, float]:
    calls = UserCalls(str(scratch), "null", None, lambda _table: False)
    frame = session.range(_ROWS)
    rows = Rows(frame, {"id": frame["id"]})
    rows, plain = calls.apart(rows, expressions, Values(_SCHEMA, ()), _SCHEMA)
    made = rows.frame.select(*(column_of(one, rows.columns).alias(f"c{place}") for place, one in enumerate(plain)))
    with TreeRecorder([os.getpid()], memory=False) as recorder:
        recorder.take()
        before_s, began_s = recorder.cpu_s(), time.monotonic()
        made.write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - began_s
        recorder.take()
        used_s = recorder.cpu_s() - before_s
    return {"rows_per_s": round(_ROWS / seconds), "cpu_us_per_row": round(used_s / _ROWS * 1e6, 3)}
