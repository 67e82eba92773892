"""Rows with the numbers of the conditions that want them, judged together by the rule stage, in the source's worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.streams.errors import JobError
from millstream.streams.rules.atoms import OF_TWO_FIELDS
from millstream.streams.rules.formulas import atoms_of
from millstream.streams.rules.plain import FIELD_SEPARATOR
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.event_rows import ArrowEvents
from millstream.streams.rules.stage.stage import RuleStage
from millstream.streams.spark.source.formats.decoder import Malformed
from millstream.streams.spark.source.messages import Messages
from millstream.streams.spark.source.rows import MessageRows, RowBuilder, tick_row
from millstream.streams.spark.source.spec import SourceSpec, WantedRows
from millstream.streams.spark.translation.types import arrow_schema

__all__ = ["WantedRowBuilder", "row_builder"]

STAGES_KEPT: Final = 4
"""Stages that a worker process keeps for the sources that it reads in turn."""

ALLOWANCE_MS: Final = 600_000
"""How long a function may take over a batch; only functions of ours are asked, and a job that lost them would fail."""


def row_builder(spec: SourceSpec) -> MessageRows:
    """What makes the rows that the spec asks for."""
    return RowBuilder(spec) if spec.wanted is None else WantedRowBuilder(spec, spec.wanted)


class WantedRowBuilder:
    """Makes record batches of exactly `schema`, in which rows tell what wants them."""

    def __init__(self, spec: SourceSpec, wanted: WantedRows) -> None:
        self.schema: pa.Schema = arrow_schema(spec.schema())
        self._drops = wanted.drops
        self._stage = _stage(wanted.file)
        self._fields = _fields(self._stage.rule_set)
        # All that is judged, which may be more than what is given on.
        self._inner = RowBuilder(replace(spec, columns=(*spec.columns, *wanted.columns), wanted=None))

    def rows(self, messages: Messages, queue: str = "") -> tuple[pa.RecordBatch, tuple[Malformed, ...]]:
        """The rows of `messages` of one queue in their order, and those that are none (by their place)."""
        batch, malformed = self._inner.rows(messages, queue)
        numbers = self._numbers(batch)
        names = self.schema.names
        arrays = [numbers if name == names[-2] else batch.column(batch.schema.get_field_index(name)) for name in names]
        judged = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._drops:
            judged = judged.filter(pc.greater(pc.list_value_length(numbers), 0))
        return judged, malformed

    def tick(self, time_ms: int) -> pa.RecordBatch:
        """One row that is no data: it moves event time to `time_ms`."""
        return tick_row(self.schema, time_ms)

    def _numbers(self, batch: pa.RecordBatch) -> pa.ListArray:
        """For each row the numbers of the conditions that hold."""
        hits = self._stage.judge(ArrowEvents(_judged_columns(batch, self._fields), {}))
        quarantined = self._stage.quarantined
        if quarantined:
            raise JobError("JOB_FAILED", f"A condition could not be judged: {quarantined[0].reason}.")
        ends = np.searchsorted(hits.rows, np.arange(batch.num_rows + 1, dtype=hits.rows.dtype))
        wanted = self.schema.field(len(self.schema) - 2).type
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pa.array(hits.rules, pa.int32()), type=wanted)


@lru_cache(maxsize=STAGES_KEPT)
def _stage(file: str) -> RuleStage:
    return RuleStage(RuleSet.decode(Path(file).read_bytes()), allowance_ms=ALLOWANCE_MS)


def _fields(rule_set: RuleSet) -> tuple[str, ...]:
    """The fields that the rules name."""
    atoms = [atom for rule in rule_set.rules for atom in atoms_of(rule.condition)]
    others = [str(atom.operands[0]) for atom in atoms if atom.op in OF_TWO_FIELDS]
    return tuple(dict.fromkeys([*(atom.field for atom in atoms), *others]))


def _judged_columns(batch: pa.RecordBatch, fields: Sequence[str]) -> pa.RecordBatch:
    """The fields as columns; of those that only an IS NULL can ask about, nothing but whether they are there."""
    arrays = []
    for field in fields:
        name, *inner = field.split(FIELD_SEPARATOR)
        column = batch.column(batch.schema.get_field_index(name))
        for one in inner:
            column = pc.struct_field(column, one)
        arrays.append(column if _is_plain(column.type) else _presence(column))
    return pa.RecordBatch.from_arrays(arrays, names=list(fields))


def _is_plain(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _presence(column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), pa.scalar(1, pa.int8()), pa.scalar(None, pa.int8()))
