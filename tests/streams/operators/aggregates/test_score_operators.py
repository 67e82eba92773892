"""Scores before OVER: cuts into micro-batches and restored states change nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from playing import Player, inserted, table_of

from millstream.streams.operators.aggregates.catalogue import AggregateSpec
from millstream.streams.operators.keys import OrderColumn
from millstream.streams.operators.over.streaming_over import OverFrame, StreamingOver
from millstream.streams.plan.types import DOUBLE


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9).map(float), st.integers(0, 30)), max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_scores_of_an_over_do_not_depend_on_where_micro_batches_are_cut(
    rows: list[tuple[str, float, int]], cuts: list[int]
) -> None:
    specs = (
        AggregateSpec("ZSCORE", (1,), DOUBLE, DOUBLE, literals=(2,)),
        AggregateSpec("EWMA", (1,), DOUBLE, DOUBLE, literals=(0.5,)),
        AggregateSpec("EWMA_SCORE", (1,), DOUBLE, DOUBLE, literals=(0.5, 2)),
        AggregateSpec("HST", (1,), DOUBLE, DOUBLE, literals=(3,)),
    )

    def player() -> Player:
        return Player(lambda: StreamingOver(3, (0,), (OrderColumn(2),), specs, OverFrame("rows"), time=2))

    rows = sorted(rows, key=lambda row: row[2])
    whole, parts = player(), player()
    whole.turn(inserted(*rows))
    whole.end()
    for cut in sorted(cuts):
        parts.turn(inserted(*(row for row in rows if row[2] <= cut)), watermark_us=cut)
        rows = [row for row in rows if row[2] > cut]
    parts.turn(inserted(*rows))
    parts.end()
    assert table_of(whole.played.said) == table_of(parts.played.said)
