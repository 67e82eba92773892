"""Operators played without Spark: rows cut into turns, their state carried over as files would carry it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.streams.operators.operator import (
    DELETE,
    END_OF_TIME_US,
    INSERT,
    START_OF_TIME_US,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    BatchTimes,
    Changes,
    Operator,
    OperatorOutput,
    Row,
)
from millstream.streams.operators.state import OperatorState
from millstream.streams.spark.operators.arrow_rows import ArrowRows

__all__ = ["Played", "Player", "table_of"]

Kinded = tuple[int, Row]


@dataclass
class Played:
    """What was said, turn by turn."""

    turns: list[list[Kinded]] = field(default_factory=list)
    late: list[tuple[int, Row]] = field(default_factory=list)

    @property
    def said(self) -> list[Kinded]:
        return [one for turn in self.turns for one in turn]


class Player:
    """Plays turns. Every turn runs on a fresh instance whose state came by deltas alone; with `stays` on one alone.

    Rows of the turns whose numbers are in `by_column` come in Arrow's columns of `schema`.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        *,
        ttl_ms: int = 0,
        schema: pa.Schema | None = None,
        by_column: Container[int] = (),
        stays: bool = False,
    ) -> None:
        self._make = make
        self._ttl_ms = ttl_ms
        self._schema = schema
        self._by_column = by_column
        self._stays = stays
        self._running: tuple[Operator, OperatorState] | None = None
        self._deltas: list[bytes] = []
        self._watermark_us = START_OF_TIME_US
        self.played = Played()

    def turn(self, *inputs: Sequence[Kinded], watermark_us: int | None = None, now_us: int = 0) -> list[Kinded]:
        """What is said of rows per input; the watermark stays where none is given."""
        operator, state = self._running or self._restored()
        self._running = (operator, state) if self._stays else None
        state.set_clock(now_us)
        after_us = self._watermark_us if watermark_us is None else max(watermark_us, self._watermark_us)
        turn, out = BatchTimes(self._watermark_us, after_us, now_us), OperatorOutput()
        for number, rows in enumerate(inputs):
            if rows:
                operator.process(number, self._changes(rows), turn, out)
        operator.advance(turn, out)
        self._watermark_us = after_us
        self._deltas.append(state.delta())
        self.played.turns.append(list(out.changes()))
        self.played.late += out.late
        return self.played.turns[-1]

    def _restored(self) -> tuple[Operator, OperatorState]:
        operator, state = self._make(), OperatorState(self._ttl_ms)
        operator.open(state)
        for delta in self._deltas:
            state.apply(delta)
        return operator, state

    def _changes(self, rows: Sequence[Kinded]) -> Changes:
        if self._schema is None or len(self.played.turns) not in self._by_column:
            return Changes([row for _, row in rows], [kind for kind, _ in rows])
        assert all(kind == INSERT for kind, _ in rows)
        columns = list(zip(*[row for _, row in rows], strict=True))
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        return Changes(ArrowRows([pa.RecordBatch.from_arrays(arrays, schema=self._schema)], len(arrays)))

    def keys(self) -> int:
        """How many values the state holds now."""
        return self._restored()[1].keys

    def end(self, now_us: int = 0) -> list[Kinded]:
        """What is said when nothing comes any more."""
        return self.turn(watermark_us=END_OF_TIME_US, now_us=now_us)

    def go_on(self, watermark_us: int) -> None:
        """Let event time go on behind its end, from where it stood before."""
        self._watermark_us = watermark_us


def inserted(*rows: Row) -> list[Kinded]:
    """Rows that come."""
    return [(INSERT, row) for row in rows]


def table_of(said: Sequence[Kinded]) -> Counter[Any]:
    """The table that changes add up to; a row that was never there cannot go."""
    table: Counter[Any] = Counter()
    for kind, row in said:
        if kind in (INSERT, UPDATE_AFTER):
            table[row] += 1
        else:
            assert kind in (DELETE, UPDATE_BEFORE)
            assert table[row] > 0, f"{row} goes and was not there"
            table[row] -= 1
    return +table
