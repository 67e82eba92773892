"""Hosts our operators in a Spark query: groups their inputs by task and returns their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import count
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from millstream.streams.operators.key_groups import FIRST_KEY_GROUPS, KeyGroups
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.nodes import Node
from millstream.streams.spark.columns.rows import KIND_COLUMN, TICK_COLUMN, EventClock, Rows, quoted_name
from millstream.streams.spark.columns.types import arrow_schema, spark_schema, spark_type
from millstream.streams.spark.lookups.job_tables import JobTables
from millstream.streams.spark.operators.operator_reports import LateShape, late_shapes
from millstream.streams.spark.operators.packing import PACKED, Packer
from millstream.streams.spark.operators.stage import OperatorSpec, OperatorStage
from millstream.streams.spark.operators.wiring import Wire, Wiring
from millstream.streams.spark.translation.expressions import column_of
from millstream.streams.spark.translation.user_calls import UserCalls
from millstream.streams.state.state_files import LocalStateFiles, StateFiles

__all__ = ["OperatorHost"]

_FIRST_NUMBER = 1_000
"""Clocks of operators are numbered from here on, those of sources from 0."""


@dataclass
class OperatorHost:
    """Runs the operators of one pipeline; `directory` is where they keep their state, in `key_groups` groups each.

    `ttl_ms` is how long unused values live (0: for ever), `idle_ms` after how long a silent queue of a source holds
    nothing up, by the source's number; queues of other sources wait for ever. `places` are the numbers and names of the
    operators in the order in which they run, as the checkpoint keeps them; without them their order says both.
    `generation` counts the changes of the query. `late_shapes` tells what rows each of them may find late. `tables` are
    the dimension tables that its lookups use, `calls` runs users' functions. `now_us` tells a worker the processing
    time of its micro-batch in microseconds. With `batch` all rows come in one micro-batch. `place` gives the state
    files of an operator where they do not lie in `directory`.
    """

    job_id: str
    directory: Path
    late: Path
    parallelism: int
    key_groups: int
    calls: UserCalls
    now_us: Callable[[], int]
    ttl_ms: int = 0
    idle_ms: Mapping[int, int] = field(default_factory=dict)
    late_shapes: dict[str, tuple[LateShape, ...]] = field(default_factory=dict)
    tables: JobTables | None = None
    batch: bool = False
    places: Sequence[tuple[int, str]] = ()
    generation: int = 0
    place: Callable[[str], StateFiles] | None = None
    _order: count[int] = field(default_factory=count)

    def run(self, node: Node, wiring: Wiring, inputs: Sequence[Rows]) -> Rows:
        """The rows of `node`, whose operator is `wiring` and whose inputs are `inputs`."""
        place = next(self._order)
        number, name = self.places[place] if self.places else (place, f"{place}-{type(node).__name__.lower()}")
        number += _FIRST_NUMBER
        self.late_shapes[name] = late_shapes(wiring)
        has_keys = any(wire.keys for wire in wiring.inputs)
        groups = KeyGroups.deal(self.key_groups, self.parallelism if has_keys else 1)
        packed = [
            self._pack(input_place, wire, rows, groups)
            for input_place, (wire, rows) in enumerate(zip(wiring.inputs, inputs, strict=True))
        ]
        clocks = [rows.clock for rows in inputs if rows.clock is not None]
        schema = spark_schema(node.schema)
        schema = schema.add(KIND_COLUMN, spark.ByteType()).add(TICK_COLUMN, spark.TimestampType())
        spec = OperatorSpec(
            # What workers keep was made for the query before.
            job_id=f"{self.job_id}-{self.generation}" if self.generation else self.job_id,
            name=name,
            make=wiring.make,
            groups=groups,
            files=LocalStateFiles(self.directory / name) if self.place is None else self.place(name),
            inputs=tuple(len(wire.columns) for wire in wiring.inputs),
            clocks=tuple(sorted({number for clock in clocks for number in clock.sources})),
            output=arrow_schema(schema),
            late=str(self.late),
            now_us=self.now_us,
            calls=self.calls.of_operator(name, node),
            ttl_ms=self.ttl_ms,
            idle_ms=self.idle_ms,
            lives_ms=wiring.lives_ms,
            of_nothing=wiring.of_nothing if self.batch else None,
            keeps_state=not self.batch,
            buckets=str(self.directory / name) if self.key_groups == FIRST_KEY_GROUPS else None,
        )
        together = reduce(DataFrame.unionAll, packed).repartition(groups.tasks, "place")
        rows = _relation(together.mapInArrow(OperatorStage(spec), schema), node, number)
        if wiring.condition is None:
            return rows
        rows, (condition,) = self.calls.apart(rows, [wiring.condition], node, node.schema)
        return rows.where(column_of(condition, rows.columns))

    def _pack(self, place: int, wire: Wire, rows: Rows, groups: KeyGroups) -> DataFrame:
        rows, plain = self.calls.apart(rows, wire.columns, wire.node, wire.node.schema)
        clock = rows.clock
        assert clock is not None
        values = [
            column_of(column, rows.columns).cast(spark_type(column.type)).alias(f"c{number}")
            for number, column in enumerate(plain)
        ]
        # An operator that reads no column still counts rows.
        row = F.struct(*(values or [F.lit(True).alias("c0")]))
        condition = F.lit(True) if rows.condition is None else F.coalesce(rows.condition, F.lit(False))
        keys = [row.getField(f"c{number}") for number in wire.keys]
        group: Column = F.pmod(F.hash(*keys), F.lit(groups.count)) if keys else F.lit(0)
        frame = rows.frame.where(condition | clock.tick_us.isNotNull() | clock.time_us.isNotNull())
        of_each = [
            F.when(condition, group.cast("int")).alias("key_group"),
            clock.queue.alias("queue"),
            clock.time_us.alias("time_us"),
            clock.tick_us.alias("tick_us"),
        ]
        if rows.kind is not None:
            of_each.append(rows.kind.cast("tinyint").alias("kind"))
        one_clock = min(clock.sources) if len(clock.sources) == 1 else None
        if one_clock is None:
            of_each.append(clock.source.cast("int").alias("source"))
        packer = Packer(
            place,
            groups,
            width=max(len(values), 1),
            kinds=rows.kind is not None,
            source=one_clock,
            timed=clock.timed,
        )
        # In a struct the values are made under one condition; as columns they cross to Python for half of the price.
        guarded = frame.select(F.when(condition, row).alias("row"), *of_each)
        return guarded.select("row.*", *guarded.columns[1:]).mapInArrow(packer, PACKED)


def _relation(frame: DataFrame, node: Node, number: int) -> Rows:
    columns = {name: F.col(quoted_name(name)) for name in node.schema.names}
    tick = F.col(TICK_COLUMN)
    nothing = F.lit(None)
    clock = EventClock(
        F.lit(number), nothing.cast("string"), nothing.cast("bigint"), F.unix_micros(tick), frozenset({number})
    )
    kind = F.col(KIND_COLUMN) if changelog_of(node) is ChangelogMode.RETRACT else None
    return Rows(frame, columns, tick.isNull(), clock=clock, kind=kind)
