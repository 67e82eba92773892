"""Plans of jobs that do not take NULL for a CAST that fails."""

from __future__ import annotations

from millstream.streams.optimizer.strict_casts import divert_bad_casts, fail_on_bad_casts
from millstream.streams.plan.nodes import Node, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

TABLE = "CREATE TABLE t (word STRING, small INT) WITH ('connector' = 'rocketmq', 'topic' = 'numbers');"
LOST = "AND(IS NOT NULL(word), IS NULL(CAST(word AS INT)))"
FAILED = f"COALESCE({LOST}, False)"


def query(select: str) -> Node:
    plan = SqlSession().compile(TABLE + select)[-1]
    assert isinstance(plan, QueryPlan)
    return plan.query


def shown(node: Node) -> str:
    return "\n".join(explain_node(node))


def test_rows_in_which_a_cast_fails_go_to_the_dead_letters_and_nowhere_else() -> None:
    node, letters = divert_bad_casts(query("SELECT CAST(word AS INT) AS n FROM t"))
    assert f"NOT({FAILED})" in shown(node)
    (letter,) = letters
    assert letter.table.name == "t"
    assert letter.node.schema.names == ("word", "__properties")
    words = shown(letter.node)
    assert "'CAST(word AS INT) failed'" in words
    assert "'numbers'" in words
    assert f"Filter {FAILED}\n" in words


def test_a_condition_sends_its_rows_before_it_is_asked() -> None:
    node, letters = divert_bad_casts(query("SELECT small FROM t WHERE CAST(word AS INT) > 3"))
    steps = [line.split()[0] + (" NOT" if "NOT(" in line else "") for line in explain_node(node)]
    assert steps == ["Project", "Filter", "Filter NOT", "Scan"]
    assert len(letters) == 1


def test_a_plan_without_casts_that_can_fail_stays_as_it_is() -> None:
    node = query("SELECT CAST(small AS STRING) AS s, TRY_CAST(word AS INT) AS n FROM t WHERE small > 3")
    assert divert_bad_casts(node) == (node, [])
    assert fail_on_bad_casts(node) == node


def test_a_strict_job_asks_before_each_projection() -> None:
    words = shown(fail_on_bad_casts(query("SELECT CAST(word AS INT) AS n FROM t")))
    assert f"CASE WHEN {FAILED} THEN FAIL(CASE WHEN {LOST} THEN 'CAST(word AS INT) failed' END) ELSE True END" in words


def test_behind_state_a_bad_cast_stays_null() -> None:
    script = """
    CREATE TABLE e (word STRING, at STRING, ts AS TO_TIMESTAMP(at), WATERMARK FOR ts AS ts)
    WITH ('connector' = 'rocketmq', 'topic' = 'numbers');
    SELECT CAST(word AS INT) AS n, COUNT(*) AS c FROM e GROUP BY word, TUMBLE(ts, INTERVAL '1' MINUTE)
    """
    node = query(script)
    assert divert_bad_casts(node) == (node, [])
