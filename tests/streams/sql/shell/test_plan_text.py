"""Every node of the plan has a line in EXPLAIN, and no node makes a scan read more than it needs."""

from __future__ import annotations

import pytest
from compiling import explained, query
from shop import plan_of

from millstream.streams.optimizer.prune_columns import prune_columns
from millstream.streams.plan.aggregates import Aggregate, AggregateCall, Expand, WindowAggregate
from millstream.streams.plan.changelog import ChangelogMode, changelog_of
from millstream.streams.plan.expressions import Call, Column, Expression, Literal
from millstream.streams.plan.joins import IntervalBounds, Join, JoinKind, SetKind, SetOperation, TemporalJoin
from millstream.streams.plan.nodes import Node, Normalize, Project, Scan, Union, WindowRows, inputs_of
from millstream.streams.plan.ordering import Frame, OrderKey, Over, OverCall, Rank, Sort
from millstream.streams.plan.tables import ComputedColumn, PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import BIGINT, BOOLEAN, STRING, DataType, TypeKind
from millstream.streams.plan.windows import Attached, Emit, Session, Tumble
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

TIMESTAMP = DataType(TypeKind.TIMESTAMP, precision=3)
HOURLY = "FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
COUNT = AggregateCall("COUNT", None, BIGINT.as_nullable(False))


def scan(prefix: str) -> Scan:
    """A table of four columns and a clock, whose names begin with `prefix`."""
    names = {"id": BIGINT, "name": STRING, "extra": STRING, "ts": TIMESTAMP}
    columns = tuple(PhysicalColumn(f"{prefix}{name}", of) for name, of in names.items())
    clock = ComputedColumn(f"{prefix}now", Call("PROCTIME", (), DataType(TypeKind.TIMESTAMP_LTZ, precision=3)))
    table = Table(f"{prefix}t", (*columns, clock), {"connector": "rocketmq"}, Watermark(f"{prefix}ts", 0))
    return Scan(table, table.schema.names)


def column(node: Node, name: str) -> Column:
    field = node.schema.find(name)
    assert field is not None
    return Column(name, field.type)


def project(node: Node, *names: str) -> Project:
    rowtime = frozenset(name for name in names if (of := node.schema.find(name)) is not None and of.rowtime)
    return Project(node, tuple((name, column(node, name)) for name in names), rowtime)


def read(node: Node) -> list[tuple[str, ...]]:
    """What each scan reads after pruning, from left to right."""
    pruned = prune_columns(node)
    found: list[tuple[str, ...]] = []
    waiting: list[Node] = [pruned]
    while waiting:
        below = waiting.pop(0)
        if isinstance(below, Scan):
            found.append(below.columns)
        waiting = [*inputs_of(below), *waiting]
    return found


def test_a_join_reads_its_keys_its_condition_and_the_event_times() -> None:
    left, right = scan("a_"), scan("b_")
    condition = Call("<>", (column(left, "a_name"), column(right, "b_name")), BOOLEAN)
    bounds = IntervalBounds("a_ts", "b_ts", -5000, 0)
    joined = Join(left, right, JoinKind.LEFT, (("a_id", "b_id"),), condition, bounds)
    node = project(joined, "a_id")
    assert read(node) == [("a_id", "a_name", "a_ts"), ("b_id", "b_name", "b_ts")]
    assert explain_node(node)[1] == (
        "  Join LEFT keys=[a_id = b_id] bounds=[a_ts from b_ts + -5000 ms to b_ts + 0 ms]"
        " condition=<>(a_name, b_name) [append, own operator]"
    )


def test_a_rank_whose_place_nobody_reads_gives_no_place() -> None:
    rank = Rank(scan("a_"), ("a_id",), (OrderKey("a_name", ascending=False),), last=3, rank_name="rn")
    pruned = prune_columns(project(rank, "a_id"))
    assert explain_node(pruned) == [
        "Project [a_id] [retract]",
        "  Rank ROW_NUMBER 1..3 partition=[a_id] order=[a_name DESC] [retract, own operator]",
        "    state: the first 3 rows of each partition",
        "    Scan a_t (rocketmq) columns=[a_id BIGINT, a_name STRING, a_ts TIMESTAMP(3) *ROWTIME*]",
        "      watermark a_ts - 0 ms",
    ]
    assert "AS rn" in explain_node(prune_columns(project(rank, "a_id", "rn")))[1]


def test_places_by_arrival_never_change() -> None:
    first = Rank(scan("a_"), ("a_id",), (OrderKey("a_now"),), last=1)
    last = Rank(scan("a_"), ("a_id",), (OrderKey("a_now", ascending=False),), last=1)
    assert changelog_of(first) is ChangelogMode.APPEND
    assert changelog_of(last) is ChangelogMode.RETRACT


def test_aggregates_and_over_calls_that_nobody_reads_are_left_out() -> None:
    total = AggregateCall("MAX", column(scan("a_"), "a_extra"), STRING)
    grouped = Aggregate(scan("a_"), (("key", column(scan("a_"), "a_id")),), (("n", COUNT), ("most", total)))
    assert read(project(grouped, "n")) == [("a_id", "a_ts")]
    over = Over(scan("a_"), ("a_id",), (OrderKey("a_ts"),), Frame("rows", 2), (OverCall("n", COUNT),))
    assert read(project(over, "a_name")) == [("a_name",)]
    assert read(project(over, "n")) == [("a_id", "a_ts")]
    assert explain_node(over)[0] == (
        "Over partition=[a_id] order=[a_ts ASC] frame=[rows, 2 rows before] calls=[COUNT(*) AS n] [append, own operator]"
    )


def test_windows_read_their_time_and_their_keys() -> None:
    rows = WindowRows(scan("a_"), Session("a_ts", 1000, ("a_name",)))
    grouped = WindowAggregate(
        rows, Attached("window_start", "window_end", "window_time"), (), (("n", COUNT),), Emit(0, None, 60_000)
    )
    assert read(grouped) == [("a_name", "a_ts")]
    assert explain_node(grouped)[:3] == [
        "WindowAggregate ATTACHED(window_start, window_end) keys=[] aggregates=[COUNT(*) AS n]"
        " emit=[early at once, for 60000 ms] [retract, own operator]",
        "  state: open windows and those that ended in the last 60000 ms; own operator in batch jobs too: the rows carry their windows already",
        "  WindowRows SESSION(a_ts, 1000 ms PARTITION BY a_name) [append, own operator]",
    ]


def test_a_hopping_window_over_appended_rows_runs_on_sparks_operators_and_a_distinct_one_does_not() -> None:
    plain = WindowAggregate(scan("a_"), Tumble("a_ts", 1000), (), (("n", COUNT),))
    distinct = AggregateCall("COUNT", column(scan("a_"), "a_id"), BIGINT, distinct=True)
    assert explain_node(plain)[0].endswith("[append, own operator]")
    exact = WindowAggregate(scan("a_"), Tumble("a_ts", 1000), (), (("n", distinct),))
    assert explain_node(exact)[0].endswith("[append, own operator]")


def test_both_sides_of_a_set_operation_keep_all_their_columns() -> None:
    left, right = project(scan("a_"), "a_id", "a_name"), project(scan("b_"), "b_id", "b_name")
    node = project(SetOperation(left, right, SetKind.EXCEPT, keep_all=True), "a_id")
    assert read(node) == [("a_id", "a_name", "a_ts"), ("b_id", "b_name", "b_ts")]
    assert explain_node(node)[1] == "  EXCEPT ALL [retract, own operator]"
    assert explain_node(Union((left, right)))[0] == "Union of 2 inputs"


def test_grouping_sets_copy_only_what_is_read() -> None:
    source = scan("a_")
    nothing: Expression = Literal(None, STRING)
    values = (column(source, "a_id"), column(source, "a_name")), (column(source, "a_id"), nothing)
    node = Expand(source, ("id", "name"), values)
    assert read(project(node, "id")) == [("a_id",)]
    assert explain_node(node)[0] == "Expand names=[id, name] projections=[a_id, a_name; a_id, NULL]"


def test_versions_upserts_and_sorted_rows_say_what_they_do() -> None:
    versions = TemporalJoin(scan("a_"), scan("b_"), JoinKind.LEFT, (("a_id", "b_id"),), "a_ts", "b_ts")
    assert explain_node(versions)[0] == (
        "TemporalJoin LEFT keys=[a_id = b_id] versions=[b_ts as of a_ts] [append, own operator]"
    )
    assert explain_node(Normalize(scan("a_"), ("a_id",)))[0] == "Normalize keys=[a_id] [retract, own operator]"
    limited = Sort(scan("a_"), (OrderKey("a_id", nulls_first=False),), limit=3, offset=1)
    assert explain_node(limited)[0] == "Sort [a_id ASC NULLS LAST] limit=3 offset=1 [retract, own operator]"


def test_proctime_is_a_time_attribute_that_a_query_carries() -> None:
    now = scan("a_").schema.find("a_now")
    assert now is not None
    assert (now.rowtime, now.proctime) == (False, True)


def test_a_computed_processing_time_is_shown_as_one() -> None:
    lines = explained("SELECT host, PROCTIME() AS p FROM events")
    assert lines[0] == "Project [host, PROCTIME() AS p]"
    field = query("SELECT host, PROCTIME() AS p FROM events").schema.find("p")
    assert field is not None
    assert field.proctime


@pytest.mark.parametrize(
    ("select", "state"),
    [
        ("SELECT DISTINCT item FROM orders", "one row for each key, for ever or the job's TTL; in batch jobs none, Spark's own operator"),
        ("SELECT COUNT(DISTINCT id) FROM orders", "one row, the values of DISTINCT, for ever or the job's TTL"),
        (f"SELECT COUNT(*) {HOURLY}", "open windows; in batch jobs Spark's own window"),
        (f"SELECT AVG(CAST(id AS DOUBLE)) {HOURLY}", "open windows; own operator in batch jobs too: sums of floating-point numbers do not depend on the order of rows"),
        (f"SELECT COUNT(DISTINCT item) {HOURLY}", "open windows; own operator in batch jobs too: DISTINCT is exact"),
        (f"SELECT COLLECT(item) {HOURLY}", "open windows; own operator in batch jobs too: Spark lacks one of the aggregates"),
        ("SELECT COUNT(*) FROM orders GROUP BY TUMBLE(p, INTERVAL '1' HOUR)", "open windows; own operator in batch jobs too: the window stands on processing time"),
        ("SELECT COUNT(*) FROM orders GROUP BY SESSION(ts, INTERVAL '1' HOUR)", "open windows; own operator in batch jobs too: Spark cuts no SESSION windows"),
        ("SELECT COUNT(*) FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders) GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)", "open windows; own operator in batch jobs too: more than filters and columns stands below"),
        ("SELECT /*+ STATE_TTL('o'='5 s') */ o.id FROM orders o JOIN payments y ON o.id = y.id", "all rows of the left side, for 5000 ms, and of the right side, for ever or the job's TTL; in batch jobs none, Spark's own operator"),
        ("SELECT o.id FROM orders o JOIN payments y ON o.id = y.id AND o.ts = y.paid", "rows whose partners may still come"),
        ("SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY item ORDER BY id) AS n FROM orders) WHERE n < 4", "the first 3 rows of each partition"),
        ("SELECT SUM(id) OVER (ORDER BY ts) FROM orders", "rows that wait for the watermark, and those of the frames"),
        ("SELECT id FROM orders ORDER BY id LIMIT 3 OFFSET 2", "the first 5 rows"),
        ("SELECT id FROM orders LIMIT 3", "how many rows were given"),
    ],
)  # fmt: skip
def test_what_a_node_keeps_is_told_with_why_it_runs_where_it_runs(select: str, state: str) -> None:
    lines = explain_node(plan_of(select))
    assert next(line.strip() for line in lines if "state: " in line) == f"state: {state}"


def test_a_window_below_an_operator_of_ours_runs_in_ours_as_well() -> None:
    lines = explain_node(plan_of(f"SELECT MAX(n) FROM (SELECT item, COUNT(*) AS n {HOURLY}, item)"))
    assert [line.strip() for line in lines if "state: " in line] == [
        "state: one row, for ever or the job's TTL",
        "state: open windows; own operator in batch jobs too: other nodes of the query need them",
    ]


@pytest.mark.parametrize(
    ("key", "options", "said"),
    [
        ("", "", "[append, once where millstream_batches can be used]"),
        (", PRIMARY KEY (a) NOT ENFORCED", ", 'sink.exactly-once' = 'always'", "[by key a, once]"),
        ("", ", 'sink.exactly-once' = 'never'", "[append, more than once where a micro-batch is repeated]"),
    ],
)
def test_a_sink_of_a_database_tells_how_often_it_writes(key: str, options: str, said: str) -> None:
    script = (
        "CREATE TABLE s (a INT) WITH ('connector' = 'datagen');"
        f"CREATE TABLE d (a INT{key}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x:y', 'table-name' = 't'{options});"
        "EXPLAIN INSERT INTO d SELECT a FROM s"
    )
    assert f"Sink d (jdbc) {said}" in str(SqlSession().compile(script)[-1])
