"""A savepoint is whole, says what it holds, and is of one moment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from savepoint_jobs import job_at, names_in

from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import DeliveryNote
from millstream.streams.jobs.identity import SHARED_FILE, JobIdentity, read_identity, shared_query, write_identity
from millstream.streams.jobs.savepoints.savepoint import (
    begins_from,
    check_savepoint,
    describe_savepoint,
    open_savepoint,
    stage_savepoint,
    write_savepoint,
)
from millstream.streams.jobs.state_fit import PlannedSource, PlanState, StateRecord


def test_a_savepoint_has_the_state_of_its_micro_batch_and_nothing_of_the_next(tmp_path: Path) -> None:
    found = write_savepoint(job_at(tmp_path), tmp_path / "saved", "before")
    assert names_in(tmp_path / "saved") == {
        "savepoint.json",
        "t/job.json",
        "t/lookups/4.version",
        "t/operators/0-aggregate/3.0-15.groups",
        "t/operators/0-aggregate/4.0-15.delta",
        "t/spark/commits/4",
        "t/spark/metadata",
        "t/spark/offsets/3",
        "t/spark/offsets/4",
    }
    assert (found.name, found.job, found.queries[0].micro_batch) == ("before", "job", 4)
    assert found.queries[0].positions["t"]["queues"] == {"b/0": 70}
    told = "\n".join(describe_savepoint(tmp_path / "saved").lines())
    assert "GROUP BY by t.k STRING over t: COUNT(*) BIGINT" in told
    assert "after micro-batch 4, 16 key groups" in told
    assert list(tmp_path.glob(".saved*")) == []


def test_files_that_a_running_job_removes_meanwhile_are_in_the_savepoint(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    staged = stage_savepoint(job, tmp_path / "saved")
    shutil.rmtree(job)
    staged.finish()
    assert (tmp_path / "saved" / "t/operators/0-aggregate/4.0-15.delta").read_bytes() == b"4.0-15.delta"
    check_savepoint(tmp_path / "saved")


def test_a_job_begins_under_an_id_of_its_own_and_once(tmp_path: Path) -> None:
    write_savepoint(job_at(tmp_path), tmp_path / "saved")
    for name in ("one", "two"):
        open_savepoint(tmp_path / "saved", tmp_path / "jobs" / name)
    ids = {identity.id for name in ("one", "two") if (identity := read_identity(tmp_path / "jobs" / name / "t"))}
    assert len(ids | {"id"}) == 3
    queries = {(tmp_path / "jobs" / name / "t" / "spark" / "metadata").read_text() for name in ("one", "two")}
    assert len(queries) == 2
    before = names_in(tmp_path / "jobs")
    open_savepoint(tmp_path / "saved", tmp_path / "jobs" / "one")
    assert names_in(tmp_path / "jobs") == before
    with pytest.raises(JobError, match="which is not of the savepoint") as refusal:
        open_savepoint(tmp_path / "saved", tmp_path / "job")
    assert refusal.value.name == "CHECKPOINT_MISMATCH"


def test_a_job_that_has_begun_goes_on_without_its_savepoint_and_with_tables_that_came_later(tmp_path: Path) -> None:
    saved, job = tmp_path / "saved", tmp_path / "jobs" / "one"
    write_savepoint(job_at(tmp_path), saved)
    assert begins_from(saved, job)
    open_savepoint(saved, job)
    assert not begins_from(saved, job)
    shutil.copytree(tmp_path / "job" / "t", job / "later")
    assert not begins_from(saved, job)
    open_savepoint(saved, job)
    shutil.rmtree(saved)
    assert not begins_from(saved, job)
    with pytest.raises(JobError, match="no savepoint in"):
        begins_from(saved, tmp_path / "jobs" / "two")


def test_a_savepoint_is_named_where_it_is_damaged_or_is_none(tmp_path: Path) -> None:
    write_savepoint(job_at(tmp_path), tmp_path / "saved")
    file = tmp_path / "saved" / "t" / "operators" / "0-aggregate" / "4.0-15.delta"
    file.write_bytes(b"4.0-15.DELTA")
    with pytest.raises(JobError, match=r"t/operators/0-aggregate/4\.0-15\.delta of the savepoint .* is damaged"):
        open_savepoint(tmp_path / "saved", tmp_path / "new")
    file.unlink()
    with pytest.raises(JobError, match=r"lacks the file t/operators/0-aggregate/4\.0-15\.delta") as damaged:
        open_savepoint(tmp_path / "saved", tmp_path / "new")
    assert damaged.value.name == "CHECKPOINT_DAMAGED"
    assert not (tmp_path / "new").exists()
    (tmp_path / "saved" / "savepoint.json").write_text("{")
    with pytest.raises(JobError, match=r"savepoint\.json is damaged"):
        describe_savepoint(tmp_path / "saved")
    with pytest.raises(JobError, match="no savepoint in") as none:
        describe_savepoint(tmp_path / "job")
    assert none.value.name == "SAVEPOINT_REFUSED"


def test_nothing_is_written_over_or_left_half_written(tmp_path: Path) -> None:
    job = job_at(tmp_path)
    (tmp_path / "saved").mkdir()
    with pytest.raises(JobError, match="is there already"):
        write_savepoint(job, tmp_path / "saved")
    plan_next = (job / "t" / "spark" / "offsets" / "4").read_text()
    (job / "t" / "spark" / "offsets" / "5").write_text(plan_next)
    DeliveryNote(5, 4).write(job / "t")
    with pytest.raises(JobError, match="begun and is not over"):
        write_savepoint(job, tmp_path / "other")
    with pytest.raises(JobError, match="no checkpoint in"):
        write_savepoint(tmp_path / "nowhere", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] in (["job", "saved"], ["saved", "job"])


def test_a_job_that_shares_a_query_is_saved_where_the_query_stands_and_another_begins_there(tmp_path: Path) -> None:
    member, query = tmp_path / "job" / "t", tmp_path / "merged-1"
    start = {"queues": {"b/0": 0}, "cut_ms": 0, "ended": False, "name": "t", "wakes": 0}
    plan = PlanState((), (PlannedSource("t", "topic=t"),), ("out",))
    write_identity(member, JobIdentity("id", "print", {"t": start}, ["Output out"], 16, StateRecord.fresh(plan)))
    (member / SHARED_FILE).write_text("merged-1")
    write_identity(query, JobIdentity("other", "", {"t": {**start, "queues": {"b/0": 20}}}))
    write_savepoint(tmp_path / "job", tmp_path / "early")
    assert describe_savepoint(tmp_path / "early").queries[0].positions["t"]["queues"] == {"b/0": 20}

    for part, batches in (("offsets", (6, 7)), ("commits", (6,))):
        (query / "spark" / part).mkdir(parents=True)
        for batch in batches:
            line = json.dumps({**start, "queues": {"b/0": 10 * batch}})
            (query / "spark" / part / str(batch)).write_text(f"v1\n{{}}\n{line}")
    DeliveryNote(7, 6).write(query)
    with pytest.raises(JobError, match="begun and is not over"):
        write_savepoint(tmp_path / "job", tmp_path / "late")
    DeliveryNote(6, 6).write(query)
    write_savepoint(tmp_path / "job", tmp_path / "late")
    assert names_in(tmp_path / "late") == {"savepoint.json", "t/job.json"}
    assert "no micro-batch of its own" in "\n".join(describe_savepoint(tmp_path / "late").lines())
    open_savepoint(tmp_path / "late", tmp_path / "jobs" / "new")
    found = read_identity(tmp_path / "jobs" / "new" / "t")
    assert found is not None
    assert found.starts["t"]["queues"] == {"b/0": 60}
    assert shared_query(tmp_path / "jobs" / "new" / "t") is None
    assert shared_query(member) == "merged-1", "the first one goes on as it was"


@pytest.mark.process
def test_savepoints_need_no_spark(tmp_path: Path) -> None:
    program = "import sys, millstream.streams.jobs.savepoints.savepoint; print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
