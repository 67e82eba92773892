"""Millstream's side: a case's script compiled, and its plan run in this process or, as a whole job, on Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from differential.cases import Arrival, Case, Source
from differential.flink import Answer, Change
from differential.plan_rows import Given, PlanRows, Told
from millstream.streams.errors import JobError, SqlError
from millstream.streams.operators.operator import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.plan.types import Schema, TypeKind
from millstream.streams.sql.session.compiler import SqlSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["answer", "answer_on_spark", "given_batches", "script_of"]

_ADDS: Final = (INSERT, UPDATE_AFTER)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def script_of(case: Case) -> str:
    """Tables, views and the query."""
    lines = [_declaration(source) for source in case.sources]
    views = case.views()
    lines += [f"CREATE VIEW {name} AS {select}" for name, select in views]
    lines.append(f"SELECT {', '.join(f'`{name}`' for name in case.query.columns)} FROM {views[-1][0]}")
    return "".join(f"{line};\n" for line in lines)


def answer(case: Case) -> Answer:
    """What ours says of a case, run in this process."""
    try:
        plan = SqlSession().compile(script_of(case))[-1]
        assert isinstance(plan, QueryPlan)
        rows = PlanRows(plan.query)
    except SqlError as refused:
        return Answer(refused=str(refused))
    except JobError as failed:
        return Answer(failed=str(failed))
    changes: list[Change] = []
    batches = []
    schema = plan.query.schema
    for given in given_batches(case):
        changes += _written(rows.run(given), schema)
        batches.append(len(changes))
    changes += _written(rows.run({}, ends=True), schema)
    batches.append(len(changes))
    return Answer(tuple(changes), rows.appends, batches=tuple(batches))


def answer_on_spark(case: Case, spark: SparkSession | None = None) -> Answer:
    """What ours says of a case, run as a job."""
    from millstream.testing import StreamTest

    test = StreamTest(script_of(case), spark=spark)
    for part in _batches(case):
        for arrival in part:
            source = next(one for one in case.sources if one.name == arrival.table)
            test.feed(source.name, _message(source, arrival))
        test.cut()
    results = test.run()
    plan = SqlSession().compile(script_of(case))[-1]
    assert isinstance(plan, QueryPlan)
    changes: list[Change] = []
    batches = []
    for told in results.batches["result"]:
        changes += [("+" if kind.value in _ADDS else "-", tuple(map(_shown, row))) for kind, row in told]
        batches.append(len(changes))
    return Answer(tuple(changes), batches=tuple(batches))


def given_batches(case: Case) -> Iterator[dict[str, Given]]:
    """What each micro-batch has for the tables."""
    return (_given(case, part) for part in _batches(case))


def _declaration(source: Source) -> str:
    form = "json" if source.key is None else "debezium-json"
    return source.declaration(f"'connector' = 'rocketmq', 'topic' = '{source.name}', 'format' = '{form}'")


def _batches(case: Case) -> Iterator[tuple[Arrival, ...]]:
    """The arrivals of each micro-batch."""
    begin = 0
    for end in (*case.cuts, len(case.arrivals)):
        if end > begin:
            yield case.arrivals[begin:end]
        begin = end


def _given(case: Case, part: tuple[Arrival, ...]) -> dict[str, Given]:
    given: dict[str, Given] = {}
    for source in case.sources:
        of = given[source.name] = Given()
        for arrival in part:
            if arrival.table != source.name:
                continue
            rows = [(False, arrival.before), (True, arrival.after)]
            is_update = arrival.before is not None and arrival.after is not None
            for is_after, row in rows:
                if row is None:
                    continue
                values = (*row[:-1], _micros(row[-1]))
                kind = (UPDATE_AFTER if is_update else INSERT) if is_after else UPDATE_BEFORE if is_update else DELETE
                of.changes.append((kind, values))
                time_us = values[-1] - source.delay_s * 1_000_000
                of.time_us = time_us if of.time_us is None else max(of.time_us, time_us)
    return given


def _message(source: Source, arrival: Arrival) -> dict[str, Any]:
    names = [name for name, _ in source.columns]
    before, after = (
        None if row is None else dict(zip(names, row, strict=True)) for row in (arrival.before, arrival.after)
    )
    if source.key is None:
        assert after is not None
        return after
    return {"before": before, "after": after, "op": "c" if before is None else "d" if after is None else "u"}


def _micros(text: str) -> int:
    return (datetime.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _written(told: Told, schema: Schema) -> Iterator[Change]:
    """Changes as Flink's CAST AS STRING writes their values."""
    times = [field.type.is_timestamp for field in schema.fields]
    truths = [field.type.kind is TypeKind.BOOLEAN for field in schema.fields]
    for kind, row in told:
        texts = []
        for value, is_time, is_truth in zip(row, times, truths, strict=True):
            if value is not None and is_time:
                value = _EPOCH + value * _MICROSECOND
            elif value is not None and is_truth:
                value = bool(value)
            texts.append(_shown(value))
        yield "+" if kind in _ADDS else "-", tuple(texts)


def _shown(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).upper()
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ", "milliseconds")
        case _:
            return str(value)
