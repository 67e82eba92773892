"""Spark's log goes on behind a change of the query, from the last micro-batch that all sinks have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import (
    MOVED,
    DeliveryNote,
    adopt_plan,
    check_passes,
    check_places,
    fit_log,
    last_over,
    raw_ends,
)
from millstream.streams.jobs.identity import JobIdentity, read_identity, write_identity
from millstream.streams.jobs.state_fit import PlannedSource, PlanState, StateRecord, fit_state


def at(name: str, offset: int, *, ended: bool = False) -> dict[str, Any]:
    return {"queues": {"b/0": offset}, "cut_ms": 0, "ended": ended, "name": name, "wakes": 0}


def plan_batch(spark: Path, number: int, *offsets: dict[str, Any] | None) -> None:
    (spark / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["-" if one is None else json.dumps(one) for one in offsets]
    (spark / "offsets" / str(number)).write_text("\n".join(["v1", '{"batchTimestampMs":7}', *lines]))


def commit_batch(spark: Path, number: int) -> None:
    (spark / "commits").mkdir(parents=True, exist_ok=True)
    (spark / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def log_of(tmp_path: Path, *, planned: int, committed: int) -> Path:
    spark = tmp_path / "spark"
    for number in range(planned + 1):
        plan_batch(spark, number, at("t", 10 * (number + 1)))
    for number in range(committed + 1):
        commit_batch(spark, number)
    return spark


def test_a_log_of_committed_micro_batches_stands_after_the_last(tmp_path: Path) -> None:
    assert last_over(tmp_path, log_of(tmp_path, planned=2, committed=2)) == 2
    assert last_over(tmp_path, tmp_path / "nothing") is None


def test_a_micro_batch_that_was_planned_and_not_begun_is_planned_anew(tmp_path: Path) -> None:
    spark = log_of(tmp_path, planned=3, committed=2)
    DeliveryNote(2, 2).write(tmp_path)
    assert last_over(tmp_path, spark) == 2


def test_a_micro_batch_that_all_sinks_have_is_over_before_spark_says_so(tmp_path: Path) -> None:
    spark = log_of(tmp_path, planned=3, committed=2)
    DeliveryNote(3, 3).write(tmp_path)
    assert last_over(tmp_path, spark) == 3


@pytest.mark.parametrize("note", [DeliveryNote(3, 2), DeliveryNote(), DeliveryNote(1, 1)])
def test_a_micro_batch_that_may_be_half_done_is_refused(tmp_path: Path, note: DeliveryNote) -> None:
    spark = log_of(tmp_path, planned=3, committed=2)
    note.write(tmp_path)
    with pytest.raises(JobError, match=r"micro-batch 3 of the old query .* was begun and is not over") as refusal:
        last_over(tmp_path, spark)
    assert "with the old query, so that it finishes" in str(refusal.value)


def test_a_log_goes_on_at_the_same_number_with_sources_of_any_order(tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    for number in range(2):
        plan_batch(spark, number, at("t", 5 + number), at("gone", 3))
        commit_batch(spark, number)
    before = PlanState(sources=(PlannedSource("t", "x"), PlannedSource("gone", "y")), sinks=("a",))
    after = PlanState(sources=(PlannedSource("u", "z"), PlannedSource("t", "x")), sinks=("a", "b"))
    identity = JobIdentity("id", "old", {"t": at("t", 0), "gone": at("gone", 0)}, state=StateRecord.fresh(before))
    write_identity(tmp_path, identity)
    (tmp_path / "operators" / "9-stray").mkdir(parents=True)
    assert identity.state is not None
    fit = fit_state(identity.state, after)
    adopt_plan(tmp_path, identity, after, fit, fingerprint="new", lines=["plan"], starts={"u": at("u", 44)})
    changed = read_identity(tmp_path)
    assert changed is not None
    assert (changed.id, changed.fingerprint, changed.spark) == ("id", "new", "spark-1")
    assert not spark.exists()
    assert not (tmp_path / "operators" / "9-stray").exists()
    log = tmp_path / "spark-1"
    assert last_over(tmp_path, log) == 1
    assert raw_ends(log, 1) == {"t": at("t", 6), "u": at("u", 44)}
    # Spark asks for the entry before the last one too, and for a line of each of its sources.
    fit_log(log, 3)
    for number in (0, 1):
        lines = (log / "offsets" / str(number)).read_text().splitlines()
        assert lines[:2] == ["v1", '{"batchTimestampMs":7}']
        assert [set(json.loads(line)[MOVED]) for line in lines[2:]] == [{"t", "u"}] * 3
    plan_batch(log, 2, at("t", 8), {MOVED: {"t": at("t", 6), "u": at("u", 44)}}, at("t", 8))
    assert raw_ends(log, 2) == {"t": at("t", 8), "u": at("u", 44)}


def test_a_crash_before_the_identity_is_written_leaves_the_old_query(tmp_path: Path) -> None:
    spark = log_of(tmp_path, planned=1, committed=1)
    state = StateRecord.fresh(PlanState(sources=(PlannedSource("t", "x"),)))
    identity = JobIdentity("id", "old", {"t": at("t", 0)}, state=state)
    write_identity(tmp_path, identity)
    (tmp_path / "spark-1" / "offsets").mkdir(parents=True)
    (tmp_path / "spark-1" / "offsets" / "77").write_text("half")
    plan = PlanState(sources=(PlannedSource("t", "x"),), sinks=("new",))
    adopt_plan(tmp_path, identity, plan, fit_state(state, plan), fingerprint="new", lines=[], starts={})
    assert raw_ends(tmp_path / "spark-1", 1) == {"t": at("t", 20)}
    assert not (tmp_path / "spark-1" / "offsets" / "77").exists()
    assert not spark.exists()


def test_branches_that_have_read_a_table_to_different_places_are_refused(tmp_path: Path) -> None:
    plan_batch(tmp_path, 0, at("t", 5), at("u", 1), at("t", 5))
    check_passes(tmp_path, 0)
    plan_batch(tmp_path, 1, at("t", 7), at("u", 1), at("t", 8))
    with pytest.raises(JobError, match="have read the table t to different places"):
        check_passes(tmp_path, 1)


def test_sinks_that_keep_notes_by_their_place_stay_at_it(tmp_path: Path) -> None:
    check_places(tmp_path, ["a", "b"], ["b", "a"])
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks" / "0-partitions.json").write_text("{}")
    check_places(tmp_path, ["a", "b"], ["a", "b", "c"])
    with pytest.raises(JobError, match="places have changed"):
        check_places(tmp_path, ["a", "b"], ["b", "a"])
