"""Where operators answer otherwise than Flink's, as the page about differences from Flink says."""

from __future__ import annotations

from playing import Player, inserted

from millstream.streams.plan.nodes import QueryPlan, inputs_of
from millstream.streams.spark.operators.wirings import wiring_of
from millstream.streams.sql.session.compiler import SqlSession

S = 1_000_000
TABLE = """CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'rocketmq', 'topic' = 't');"""


def operator_of(select: str, kind: str) -> Player:
    """The operator of the first node of that kind."""
    plan = SqlSession().compile(TABLE + select)[-1]
    assert isinstance(plan, QueryPlan)
    node = plan.query
    while type(node).__name__ != kind:
        (node,) = inputs_of(node)
    wiring = wiring_of(node)
    assert wiring is not None
    assert [str(column) for column in wiring.inputs[0].columns][:1] == ["k"]
    return Player(wiring.make)


def test_lag_is_the_row_before_also_among_rows_of_one_time() -> None:
    over = operator_of("SELECT k, v, ts, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS x FROM t", "Over")
    over.turn(inserted(("a", 5, 1 * S, 5), ("a", 6, 1 * S, 6), ("a", 7, 1 * S, 7)))
    assert [row[-1] for _, row in over.end()] == [None, 5, 6]


def test_a_match_behind_a_try_that_never_ends_is_told_at_the_end() -> None:
    found = operator_of(
        "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, C.v AS c ONE ROW PER MATCH"
        " AFTER MATCH SKIP PAST LAST ROW PATTERN (A B* C) DEFINE C AS v = 2 * A.v)",
        "Match",
    )
    rows = [("a", 1 * S, 5), ("a", 2 * S, 6), ("a", 3 * S, 12)]
    assert found.turn(inserted(*rows), watermark_us=9 * S) == []
    assert [row[-2:] for _, row in found.end()] == [(6, 12)]
