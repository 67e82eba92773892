"""Random queries whose operators go on with another number of tasks after each micro-batch, from files alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from differential.generator import draw_case
from differential.ours import given_batches, script_of
from differential.plan_rows import PlanRows, Told, share_of

from millstream.streams.operators.key_groups import KeyGroups
from millstream.streams.operators.operator import INSERT, UPDATE_AFTER
from millstream.streams.plan.nodes import Node, QueryPlan
from millstream.streams.plan.types import Field, Schema
from millstream.streams.spark.columns.rows import KIND_COLUMN, TICK_COLUMN
from millstream.streams.spark.columns.types import arrow_schema, spark_schema
from millstream.streams.spark.operators import stage as stages
from millstream.streams.spark.operators.arrow_rows import batch_of, rows_of
from millstream.streams.spark.operators.clocks import Seen, encode
from millstream.streams.spark.operators.packing import GROUP_COLUMN
from millstream.streams.spark.operators.stage import OperatorSpec, OperatorStage
from millstream.streams.spark.operators.wiring import Wiring
from millstream.streams.spark.runtime.micro_batch import ToldTime
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.state import group_log
from millstream.streams.state.state_files import LocalStateFiles

GROUPS = 12


@dataclass
class Moving:
    """Runs the operators of one plan, each micro-batch with a number of tasks that chance draws."""

    directory: Path
    random: Random
    batch_id: int = 0
    made: list[Staged] = field(default_factory=list)

    def stateful(self, wiring: Wiring, node: Node, clocks: frozenset[int]) -> Staged:
        self.made.append(Staged(self, f"{len(self.made)}", wiring, node, clocks))
        return self.made[-1]


class Staged:
    """One operator in the stage in which jobs run it: packed rows, files of state, no process that remembers."""

    def __init__(self, moving: Moving, name: str, wiring: Wiring, node: Node, clocks: frozenset[int]) -> None:
        self._moving, self._name, self._wiring, self._node, self._clocks = moving, name, wiring, node, clocks
        types = [
            Schema(tuple(Field(f"c{at}", one.type) for at, one in enumerate(wire.columns))) for wire in wiring.inputs
        ]
        self._inputs = [arrow_schema(spark_schema(schema)) for schema in types]

    def run(self, inputs: Sequence[Told], seen: Mapping[int, Seen]) -> tuple[Told, int]:
        moving = self._moving
        has_keys = any(wire.keys for wire in self._wiring.inputs)
        groups = KeyGroups.deal(GROUPS, moving.random.choice([1, 2, 3, 5, GROUPS]) if has_keys else 1)
        if moving.random.random() < 0.5:
            stages._kept_states.clear()
        output = [
            *arrow_schema(spark_schema(self._node.schema)),
            pa.field(KIND_COLUMN, pa.int8()),
            pa.field(TICK_COLUMN, pa.timestamp("us", "UTC")),
        ]
        spec = OperatorSpec(
            job_id="job",
            name=self._name,
            make=self._wiring.make,
            groups=groups,
            files=LocalStateFiles(moving.directory / self._name),
            inputs=tuple(len(wire.columns) for wire in self._wiring.inputs),
            clocks=tuple(sorted(self._clocks)),
            output=pa.schema(output),
            late=str(moving.directory / "late"),
            now_us=ToldTime(0),
            lives_ms=self._wiring.lives_ms,
        )
        made: Told = []
        ticks: list[int] = []
        for batch in OperatorStage(spec)(iter([self._packed(inputs, seen, groups)])):
            for values in rows_of(batch, len(output)):
                if values[-1] is None:
                    made.append((values[-2], values[:-2]))
                else:
                    ticks.append(values[-1])
        return made, max(ticks, default=-(2**63))

    def _packed(self, inputs: Sequence[Told], seen: Mapping[int, Seen], groups: KeyGroups) -> pa.RecordBatch:
        packed = [
            {
                "task": task,
                "number": number,
                "origin": 0,
                "part": 0,
                "rows": self._stream(number, told, groups.range_of(task)),
                "clocks": encode(seen),
            }
            for task in range(groups.tasks)
            for number, told in enumerate(inputs)
        ]
        return pa.RecordBatch.from_pylist(packed)

    def _stream(self, number: int, told: Told, groups: range) -> bytes | None:
        keys, shape = self._wiring.inputs[number].keys, self._inputs[number]
        placed = [(share_of([row[key] for key in keys], GROUPS), kind, row) for kind, row in told]
        own = [one for one in placed if one[0] in groups]
        if not own:
            return None
        columns = batch_of([row for _, _, row in own], list(shape))
        kinds = pa.array([kind for _, kind, _ in own], pa.int8())
        numbers = pa.array(np.array([group for group, _, _ in own], np.int16))
        batch = pa.RecordBatch.from_arrays([*columns, kinds, numbers], names=[*shape.names, KIND_COLUMN, GROUP_COLUMN])
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(out.getvalue())


def tables_of(batches: Iterator[Told]) -> list[Counter[tuple[object, ...]]]:
    """The rows that are there after each micro-batch."""
    table: Counter[tuple[object, ...]] = Counter()
    found = []
    for told in batches:
        for kind, row in told:
            table[row] += 1 if kind in (INSERT, UPDATE_AFTER) else -1
        found.append(+table)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_query_gives_the_same_with_another_number_of_tasks_in_each_micro_batch(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = draw_case(seed)
    plan = SqlSession().compile(script_of(case))[-1]
    assert isinstance(plan, QueryPlan)
    random = Random(seed)
    monkeypatch.setattr(group_log, "MIN_SNAPSHOT_BYTES", random.choice([0, 10_000]))
    moving = Moving(tmp_path, random)
    monkeypatch.setattr(stages, "micro_batch", lambda: moving.batch_id)

    def played(rows: PlanRows) -> Iterator[Told]:
        for number, given in enumerate(given_batches(case)):
            moving.batch_id = number
            yield rows.run(given)
        moving.batch_id += 1
        yield rows.run({}, ends=True)

    alone = tables_of(played(PlanRows(plan.query)))
    assert tables_of(played(PlanRows(plan.query, moving.stateful))) == alone
