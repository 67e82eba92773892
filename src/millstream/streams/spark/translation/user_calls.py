"""Places user functions in a Spark query: below the calling node, once per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.functions import arrow_udf

from millstream.streams.plan.expressions import Expression
from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import Schema
from millstream.streams.plan.user_calls import CallExtractor, ExtractedCall, has_user_call, has_users_aggregates
from millstream.streams.spark.columns.rows import Rows
from millstream.streams.spark.columns.types import spark_type
from millstream.streams.spark.functions.user_calls import FAILED, PlacedCall, UserStage, batch_call, call_spool
from millstream.streams.spark.operators.stage import CallsSpec
from millstream.streams.spark.translation.expressions import column_of

__all__ = ["DEAD_LETTER", "UserCalls"]

DEAD_LETTER = "dead-letter"


@dataclass
class UserCalls:
    """The calls of one pipeline. `spool` is where failed ones are left; `on_error` null, fail or dead-letter.

    A call may take `timeout_ms`, None for any time. `has_dead_letter_topic` tells whether dead letters of a table
    have a topic; `tables` has, by stage, the table of each that makes some.
    """

    spool: str
    on_error: str
    timeout_ms: int | None
    has_dead_letter_topic: Callable[[Table], bool]
    tables: dict[str, Table] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)

    def number(self) -> int:
        """One for the name of a stage, in the order of the plan."""
        return next(self._numbers)

    def apart(
        self, rows: Rows, expressions: Sequence[Expression], node: Node, schema: Schema, *, keeps_all: bool = False
    ) -> tuple[Rows, list[Expression]]:
        """The rows with the values of all calls in the expressions as columns, and the expressions over those.

        The rows are those of `node`, of the columns of `schema`. Those for which a call fails are not among them where
        they are dead letters. With `keeps_all` the data frame keeps what is not among the rows, as ticks.
        """
        if rows.copies is not None or not any(map(has_user_call, expressions)):
            return rows, list(expressions)
        names = count()
        number = self.number()
        found = CallExtractor(lambda: f"__call_{number}_{next(names)}")
        plain = [found.extract(one) for one in expressions]
        if not keeps_all and rows.clock is None and rows.condition is not None:
            rows = Rows(rows.frame.where(rows.condition), rows.columns, rows.condition, kind=rows.kind)
        for level in sorted({one.level for one in found.calls}):
            calls = [one for one in found.calls if one.level == level]
            rows = self._stage(f"{number}-{level}", calls, rows, node, schema)
        return rows, plain

    def of_operator(self, name: str, node: Node) -> CallsSpec | None:
        """How an operator calls the users' aggregates of `node`; None where it has none."""
        if not has_users_aggregates(node):
            return None
        table = self._letter_table(node)
        if table is not None:
            self.tables[name] = table
        return CallsSpec(call_spool(self.spool), self.on_error == "fail", table is not None, self.timeout_ms)

    def _letter_table(self, node: Node) -> Table | None:
        """The table whose dead-letter topic takes the node's rows; None where there is none."""
        takers = (scan.table for scan in scans_of(node) if self.has_dead_letter_topic(scan.table))
        return next(takers, None) if self.on_error == DEAD_LETTER else None

    def _stage(self, name: str, calls: Sequence[ExtractedCall], rows: Rows, node: Node, schema: Schema) -> Rows:
        arrays: list[SparkColumn] = []
        placed = []
        for one in calls:
            places = [self._place(argument, rows.columns, arrays) for argument in one.call.arguments]
            arrays.append(_is_asked(one, rows))
            placed.append(PlacedCall(batch_call(one.call), tuple(places), len(arrays) - 1))
        table = self._letter_table(node)
        start = len(arrays)
        if table is not None:
            self.tables[name] = table
            arrays += [rows.columns[of.name].cast(spark_type(of.type)) for of in schema.fields]
        stage = UserStage(
            name,
            tuple(placed),
            call_spool(self.spool),
            self.on_error,
            self.timeout_ms,
            None if table is None else schema,
            start,
        )
        return self._run(stage, calls, rows, arrays)

    def _run(self, stage: UserStage, calls: Sequence[ExtractedCall], rows: Rows, arrays: Sequence[SparkColumn]) -> Rows:
        values = [spark.StructField(f"c{place}", spark_type(one.call.type)) for place, one in enumerate(calls)]
        result = spark.StructType([*values, spark.StructField(FAILED, spark.BooleanType())])

        def compute(*arrays: pa.Array) -> pa.Array:
            return stage(*arrays)

        wrap: Callable[..., Any] = arrow_udf
        # Spark repeats or moves what it holds for deterministic; a call is made once.
        column = wrap(compute, result).asNondeterministic()(*arrays)
        struct = f"__calls_{stage.name}"
        frame = rows.frame.withColumn(struct, column)
        named = {one.name: F.col(f"`{struct}`.c{place}") for place, one in enumerate(calls)}
        added = Rows(frame, {**rows.columns, **named}, rows.condition, rows.clock, rows.kind, rows.copies)
        return added if stage.letter is None else added.where(~F.col(f"`{struct}`.{FAILED}"))

    def _place(self, argument: Expression, columns: Mapping[str, SparkColumn], arrays: list[SparkColumn]) -> int:
        arrays.append(column_of(argument, columns).cast(spark_type(argument.type)))
        return len(arrays) - 1


def _is_asked(one: ExtractedCall, rows: Rows) -> SparkColumn:
    """Whether a row asks: it is among the rows, and its branch is taken."""
    here = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
    return here if one.condition is None else here & F.coalesce(column_of(one.condition, rows.columns), F.lit(False))
