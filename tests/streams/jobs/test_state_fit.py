"""What becomes of the state of a job when its query changes, said from descriptions alone."""

from __future__ import annotations

import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.plan_state import plan_state
from millstream.streams.jobs.state_fit import StateFit, StateRecord, fit_state
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE t (k STRING, j STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE u (k STRING, w INT) WITH ('connector' = 'rocketmq', 'topic' = 'u');
CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE b (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE c (k STRING, n BIGINT, m BIGINT) WITH ('connector' = 'print');
"""
COUNT = "INSERT INTO a SELECT k, COUNT(*) FROM t GROUP BY k;"
JOIN = "INSERT INTO b SELECT t.k, CAST(w AS BIGINT) FROM t JOIN u ON t.k = u.k;"


def window(size: int = 10, sink: str = "b", keys: str = "k") -> str:
    return (
        f"INSERT INTO {sink} SELECT {keys}, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{size}' SECOND) "
        f"GROUP BY {keys}, window_start, window_end;"
    )


def ranked(order: str = "v DESC", last: int = 2) -> str:
    return (
        f"INSERT INTO b SELECT k, n FROM (SELECT k, CAST(v AS BIGINT) AS n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY "
        f"{order}) AS r FROM t) WHERE r <= {last};"
    )


def pattern(condition: str = "A.v > 3") -> str:
    return (
        "INSERT INTO b SELECT k, n FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES CAST(B.v AS BIGINT) AS n "
        f"PATTERN (A B) DEFINE A AS {condition});"
    )


def over(rows: int = 2) -> str:
    return (
        "INSERT INTO b SELECT k, CAST(SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN "
        f"{rows} PRECEDING AND CURRENT ROW) AS BIGINT) FROM t;"
    )


def session(gap: int = 5) -> str:
    return (
        f"INSERT INTO b SELECT k, COUNT(*) FROM SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND) "
        "GROUP BY k, window_start, window_end;"
    )


def fit(before: str, after: str, tables: str = TABLES) -> StateFit:
    plans = []
    for inserts, declared in ((before, TABLES), (after, tables)):
        plan = SqlSession().compile(f"{declared}EXECUTE STATEMENT SET BEGIN {inserts} END;")[-1]
        assert isinstance(plan, JobPlan)
        plans.append(plan_state([(sink.table.name, sink.input) for sink in plan.sinks]))
    return fit_state(StateRecord.fresh(plans[0]), plans[1])


def verdicts(found: StateFit) -> list[str]:
    return [str(one).partition(":")[0].partition(",")[0].partition(" (")[0] for one in found.operators]


KEPT = [
    (COUNT, COUNT.replace("FROM t", "FROM t WHERE v > 3")),
    (COUNT.replace("FROM t", "FROM t WHERE v > 3"), COUNT),
    (COUNT, "INSERT INTO a SELECT k, n + 1 FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) WHERE n > 2;"),
    (COUNT, "INSERT INTO a SELECT x, COUNT(*) FROM (SELECT k AS x, v FROM t) GROUP BY x;"),
    (COUNT, COUNT.replace("INTO a", "INTO b")),
    (COUNT, "INSERT INTO c SELECT k, COUNT(*), 7 FROM t GROUP BY k;"),
    (window(), window(sink="a")),
    (window(), window().replace("GROUP BY", "WHERE v > 2 GROUP BY")),
    (ranked(), ranked().replace("FROM t)", "FROM t WHERE v > 3)")),
    (pattern(), pattern()),
    (over(), over()),
    (session(), session()),
    (JOIN, JOIN.replace("t.k, CAST(w AS BIGINT)", "UPPER(t.k), CAST(w AS BIGINT) + 1")),
]


@pytest.mark.parametrize(("before", "after"), KEPT)
def test_what_stands_beside_an_operator_leaves_its_state(before: str, after: str) -> None:
    found = fit(before, after)
    assert verdicts(found) == ["kept"]
    found.check("here", ignores_unclaimed=False)


IN_THE_WAY = [
    (COUNT, "INSERT INTO a SELECT k, SUM(v) FROM t GROUP BY k;"),
    (COUNT, "INSERT INTO a SELECT j, COUNT(*) FROM t GROUP BY j;"),
    (COUNT, "INSERT INTO a SELECT UPPER(k), COUNT(*) FROM t GROUP BY UPPER(k);"),
    (COUNT, "INSERT INTO a SELECT k, COUNT(*) FILTER (WHERE v > 2) FROM t GROUP BY k;"),
    (COUNT, "INSERT INTO a SELECT k, COUNT(DISTINCT v) FROM t GROUP BY k;"),
    (window(10), window(20)),
    (window(), window(keys="j")),
    (ranked(), ranked(last=3)),
    (ranked(), ranked("v ASC")),
    (pattern(), pattern("A.v > 4")),
    (over(2), over(3)),
    (session(5), session(6)),
    (JOIN, JOIN.replace("JOIN u", "LEFT JOIN u")),
    (JOIN, JOIN.replace("t.k = u.k", "t.j = u.k")),
]


@pytest.mark.parametrize(("before", "after"), IN_THE_WAY)
def test_state_of_another_form_is_in_the_way_whatever_the_user_consents_to(before: str, after: str) -> None:
    found = fit(before, after)
    assert verdicts(found) == ["in the way"]
    with pytest.raises(JobError, match=r"has another form: it holds .*; the query needs ") as refusal:
        found.check("here", ignores_unclaimed=True)
    assert refusal.value.name == "CHECKPOINT_MISMATCH"
    assert "drops its state" in str(refusal.value)


def test_one_more_aggregate_for_the_same_sink_is_in_the_way_and_for_another_one_begins_empty() -> None:
    more = "INSERT INTO c SELECT k, COUNT(*), MAX(v) FROM t GROUP BY k;"
    assert verdicts(fit(more.replace("MAX", "MIN"), more)) == ["in the way"]
    assert verdicts(fit(COUNT, COUNT + more)) == ["kept", "new"]


def test_an_operator_that_is_gone_needs_consent() -> None:
    found = fit(COUNT + window(), COUNT)
    assert verdicts(found) == ["kept", "dropped"]
    with pytest.raises(JobError, match=r"No operator takes over the state of window aggregation by t\.k") as refusal:
        found.check("here", ignores_unclaimed=False)
    assert "execution.state-recovery.ignore-unclaimed-state" in str(refusal.value)
    found.check("here", ignores_unclaimed=True)


def test_operators_are_found_in_any_order() -> None:
    found = fit(COUNT + window(), window() + COUNT)
    assert [one.kept.name for one in found.operators if one.kept] == ["1-windowaggregate", "0-aggregate"]
    assert verdicts(found) == ["kept", "kept"]


def test_operators_of_one_form_are_told_apart_by_conditions_then_by_sinks() -> None:
    low = "INSERT INTO a SELECT k, COUNT(*) FROM t WHERE v < 3 GROUP BY k;"
    high = "INSERT INTO b SELECT k, COUNT(*) FROM t WHERE v > 3 GROUP BY k;"
    found = fit(low + high, high + low)
    assert [one.kept.name for one in found.operators if one.kept] == ["1-aggregate", "0-aggregate"]
    moved = fit(low + high, high.replace("> 3", "> 4") + low.replace("< 3", "< 4"))
    assert [one.kept.name for one in moved.operators if one.kept] == ["1-aggregate", "0-aggregate"]


def test_a_user_is_told_that_rows_before_were_chosen_by_the_old_condition() -> None:
    (line, *_) = fit(
        COUNT.replace("FROM t", "FROM t WHERE v > 3"), COUNT.replace("FROM t", "FROM t WHERE v > 5")
    ).lines()
    assert "rows before were chosen by the old condition" in line
    assert "3" in line


def test_tables_come_and_go_with_their_positions() -> None:
    added = fit(COUNT, COUNT + JOIN)
    assert (added.kept_sources, added.new_sources, added.dropped_sources) == (("t",), ("u",), ())
    assert (added.kept_sinks, added.new_sinks, added.dropped_sinks) == (("a",), ("b",), ())
    assert verdicts(added) == ["kept", "new"]
    gone = fit(COUNT + JOIN, COUNT)
    assert (gone.kept_sources, gone.dropped_sources, gone.dropped_sinks) == (("t",), ("u",), ("b",))


def test_a_table_of_another_topic_is_refused() -> None:
    found = fit(COUNT, COUNT, TABLES.replace("'topic' = 't'", "'topic' = 'other'"))
    with pytest.raises(JobError, match="was connector=rocketmq, topic=t and is connector=rocketmq, topic=other"):
        found.check("here", ignores_unclaimed=True)


def test_numbers_and_directories_are_never_used_twice() -> None:
    plans = []
    for inserts in (COUNT + window(), COUNT, window() + COUNT):
        plan = SqlSession().compile(f"{TABLES}EXECUTE STATEMENT SET BEGIN {inserts} END;")[-1]
        assert isinstance(plan, JobPlan)
        plans.append(plan_state([(sink.table.name, sink.input) for sink in plan.sinks]))
    table = StateRecord.fresh(plans[0])
    for plan_after in plans[1:]:
        table = table.follow(plan_after, fit_state(table, plan_after))
    assert [one.name for one in table.operators] == ["2-windowaggregate", "0-aggregate"]
