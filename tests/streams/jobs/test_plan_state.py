"""What a query keeps is said of every node that an operator runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import JobIdentity, write_identity
from millstream.streams.jobs.plan_state import fits, plan_state
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.state_fit import StateRecord
from millstream.streams.plan import state_forms
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.operators.wirings import WIRINGS
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE t (k STRING, v INT) WITH ('connector' = 'rocketmq', 'topic' = 't');
CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');
"""
COUNT = "INSERT INTO a SELECT k, COUNT(*) FROM t GROUP BY k;"


def compiled(insert: str) -> JobPlan:
    plan = SqlSession().compile(TABLES + insert)[-1]
    assert isinstance(plan, JobPlan)
    return plan


def test_each_kind_of_node_that_an_operator_runs_has_a_form() -> None:
    assert set(state_forms._KINDS) == set(WIRINGS)


def test_the_fit_of_a_job_is_told_by_query_without_touching_its_checkpoint(tmp_path: Path) -> None:
    plan = compiled(COUNT)
    state = StateRecord.fresh(plan_state([("shown", plan.sinks[0].input)]))
    write_identity(tmp_path / "t", JobIdentity("id", "plan", {"t": {}}, state=state))
    before = (tmp_path / "t" / "job.json").read_bytes()
    (kept,) = fits(tmp_path, compiled(COUNT.replace("FROM t", "FROM t WHERE v > 3"))).values()
    assert (kept.kept_sinks, kept.dropped_sinks) == (("shown",), ())
    assert [one.in_way for one in kept.operators] == [False]
    (other,) = fits(tmp_path, compiled(COUNT.replace("COUNT(*)", "SUM(v)"))).values()
    assert [one.in_way for one in other.operators] == [True]
    assert (tmp_path / "t" / "job.json").read_bytes() == before
    (fresh,) = fits(tmp_path / "nowhere", plan).values()
    assert [one.kept for one in fresh.operators] == [None]


def test_a_checkpoint_of_an_earlier_release_is_refused_by_name(tmp_path: Path) -> None:
    write_identity(tmp_path / "t", JobIdentity("id", "plan", {"t": {}}))
    with pytest.raises(JobError, match="was written by an earlier release"):
        fits(tmp_path, compiled(COUNT))


def test_explain_shows_the_ids_and_counts_equal_ones() -> None:
    twice = f"EXPLAIN STATEMENT SET BEGIN {COUNT} {COUNT} END;"
    text = str(SqlSession().compile(TABLES + twice)[-1])
    (operator, _) = plan_state([(str(number), compiled(COUNT).sinks[0].input) for number in range(2)]).operators
    assert f"State {operator.form.id}: GROUP BY by t.k STRING over t: COUNT(*) BIGINT" in text
    assert f"State {operator.form.id}-2: " in text


def test_settings_are_known_by_the_names_that_they_had_before() -> None:
    script = (
        "SET 'execution.savepoint.path' = '/saved';SET 'execution.savepoint.ignore-unclaimed-state' = 'true';" + TABLES
    )
    plan = SqlSession().compile(script + COUNT)[-1]
    assert isinstance(plan, JobPlan)
    settings = JobSettings.of(plan.settings, "")
    assert (settings.savepoint, settings.ignores_unclaimed) == ("/saved", True)
