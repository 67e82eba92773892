"""What branches give of finite rows, worked out row by row, with conditions that a source has judged or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.streams.operators.evaluate import evaluator
from millstream.streams.optimizer.predicate_pushdown import SourceStage
from millstream.streams.plan.expressions import BRANCHES, IS_WANTED, WANTED, Call, Expression, Literal
from millstream.streams.plan.fan_out import FanOut
from millstream.streams.plan.nodes import Filter, JobPlan, Node, Project, Scan
from millstream.streams.plan.tables import ComputedColumn
from millstream.streams.rules.reference import evaluate
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["TABLES", "answer", "job"]

TABLES = """
CREATE TABLE events (host STRING, image STRING, port INT, score DOUBLE, ok BOOLEAN, ts TIMESTAMP(3), low AS LOWER(image),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json');
CREATE TABLE made (host STRING) WITH ('connector' = 'datagen');
CREATE TABLE alerts (rule STRING, host STRING, port INT)
  WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');
CREATE TABLE counts (host STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE others (host STRING) WITH ('connector' = 'print');
"""

Row = tuple[Any, ...]
Event = Mapping[str, Any]


def job(*inserts: str, settings: str = "") -> JobPlan:
    """One job of these INSERTs."""
    plan = SqlSession().compile(f"{settings}{TABLES}EXECUTE STATEMENT SET BEGIN {'; '.join(inserts)}; END")[-1]
    assert isinstance(plan, JobPlan)
    return plan


def answer(node: Node, events: Sequence[Event], stage: SourceStage | None = None) -> list[Row]:
    """The rows of a branch; `stage` is what the source has judged."""
    rows = _rows(node, events, stage)
    return [tuple(row[name] for name in node.schema.names) for row, _ in rows]


def _rows(node: Node, events: Sequence[Event], stage: SourceStage | None) -> list[tuple[dict[str, Any], Event]]:
    match node:
        case Scan(table=table, columns=columns):
            wanted = [event for event in events if stage is None or not stage.drops or _numbers(stage, event)]
            computed = {one.name: one.expression for one in table.columns if isinstance(one, ComputedColumn)}
            return [
                ({name: _value(computed[name], event) if name in computed else event[name] for name in columns}, event)
                for event in wanted
            ]
        case Filter(predicate=Call(function=function, arguments=(Literal(value=number),))) if function == IS_WANTED:
            assert stage is not None
            return [(row, event) for row, event in _rows(node.input, events, stage) if number in _numbers(stage, event)]
        case Filter(predicate=predicate):
            return [(row, event) for row, event in _rows(node.input, events, stage) if _value(predicate, row) is True]
        case Project(columns=columns):
            below = _rows(node.input, events, stage)
            return [({name: _value(value, row) for name, value in columns}, event) for row, event in below]
        case FanOut(branches=branches, constants=constants):
            return [
                ({**row, **{one.name: one.values[number] for one in constants}}, event)
                for row, event in _rows(node.input, events, stage)
                for number in _branches(branches, row, event, stage)
            ]
    raise NotImplementedError(type(node).__name__)


def _branches(branches: Expression, row: Event, event: Event, stage: SourceStage | None) -> list[int]:
    assert isinstance(branches, Call)
    if branches.function == BRANCHES:
        return [number for number, condition in enumerate(branches.arguments) if _value(condition, row) is True]
    assert branches.function == WANTED
    assert stage is not None
    first, end = (
        int(one.value) for one in branches.arguments if isinstance(one, Literal) and isinstance(one.value, int)
    )
    return [number - first for number in _numbers(stage, event) if first <= number < end]


def _numbers(stage: SourceStage, event: Event) -> list[int]:
    return [number for number, one in enumerate(stage.conditions) if evaluate(one, event.get) is True]


def _value(expression: Expression, row: Event) -> Any:
    names = list(row)
    return evaluator(expression, {name: place for place, name in enumerate(names)})(tuple(row.values()))
