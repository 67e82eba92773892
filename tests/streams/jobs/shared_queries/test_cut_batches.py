"""A micro-batch of a shared query that was cut short is finished by the jobs that began it, or named as one that is not."""

from __future__ import annotations

import logging
import pickle
import threading
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.jobs.adoption import DeliveryNote, batches_in
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.shared_queries.cut_batches import (
    MAX_FINISHES,
    SharedPlans,
    finish_cut_batch,
    note_plans,
    read_plans,
)
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.spark.source.position import Position
from millstream.streams.sql.session.compiler import SqlSession

SCRIPT = """
CREATE TABLE events (host STRING, port INT, price DECIMAL(9, 2), day DATE)
  WITH ('connector' = 'rocketmq', 'topic' = 'events', 'format' = 'json');
CREATE TABLE alerts (host STRING) WITH ('connector' = 'rocketmq', 'topic' = 'alerts', 'format' = 'json');
INSERT INTO alerts SELECT UPPER(host) FROM events WHERE port IN (1, 2) AND price > 1.50 AND day > DATE '2026-01-01';
INSERT INTO alerts SELECT host FROM events WHERE port = 3;
"""


def plans() -> list[tuple[str, JobPlan]]:
    found = [one for one in SqlSession().compile(SCRIPT) if isinstance(one, JobPlan)]
    return [(f"job-{number}", plan) for number, plan in enumerate(found)]


def cut(directory: Path, *, begun: int, over: int, committed: int, planned: int) -> Checkpoint:
    """A checkpoint whose query ended within a micro-batch."""
    query = Checkpoint.open(directory, "", lambda: {"events": Position({"b/0": 0}, name="events")})
    for kind, last in (("offsets", planned), ("commits", committed)):
        (directory / "spark" / kind).mkdir(parents=True, exist_ok=True)
        for batch in range(last + 1):
            end = msgspec.json.encode(Position({"b/0": 10 * (batch + 1)}, name="events").to_json()).decode()
            (directory / "spark" / kind / str(batch)).write_text(f"v1\n{{}}\n{end}")
    DeliveryNote(begun, over).write(directory)
    return query


class Finishing:
    """A query that delivers the micro-batch, unless it `fails`."""

    def __init__(self, directory: Path, *, fails: bool = False) -> None:
        self._directory = directory
        self._fails = fails
        self.started: list[SharedPlans] = []
        self.stops = 0
        self.over = threading.Event()

    def start(self, plans: SharedPlans) -> Finishing:
        self.started.append(plans)
        if self._fails:
            self.over.set()
        else:
            DeliveryNote(3, 3).write(self._directory)
        return self

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=0, rows_out={})

    def wait(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)

    def failure(self) -> JobError | None:
        return None

    def stop(self) -> None:
        self.stops += 1


def test_plans_are_read_as_they_were_noted_and_no_other_user_may_read_them(tmp_path: Path) -> None:
    note_plans(tmp_path, plans())
    assert read_plans(tmp_path) == plans()
    assert (tmp_path / "plans").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps(print), pickle.dumps(Path("/")), pickle.dumps(5)])
def test_what_is_no_list_of_plans_is_not_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plans").write_bytes(content)
    assert read_plans(tmp_path) is None


def test_the_jobs_that_began_a_micro_batch_finish_it(tmp_path: Path) -> None:
    query = cut(tmp_path, begun=3, over=2, committed=2, planned=3)
    note_plans(tmp_path, plans())
    finishing = Finishing(tmp_path)
    finish_cut_batch(tmp_path, finishing.start, following=plans()[:1])
    assert (finishing.started, finishing.stops) == ([plans()], 1)
    assert max(batches_in(tmp_path / "spark" / "commits")) == 3
    found = Checkpoint.find(tmp_path)
    assert found is not None
    assert found.job_id == query.job_id
    assert found.delivered_ends()["events"].queues == {"b/0": 40}


def test_the_same_jobs_need_no_start_of_their_own_for_it(tmp_path: Path) -> None:
    cut(tmp_path, begun=3, over=2, committed=2, planned=3)
    note_plans(tmp_path, plans())
    finishing = Finishing(tmp_path)
    finish_cut_batch(tmp_path, finishing.start, following=plans())
    assert finishing.started == []


@pytest.mark.parametrize(
    ("begun", "over", "committed", "planned", "ends_at"),
    [(2, 2, 2, 2, 2), (2, 2, 2, 3, 2), (3, 3, 2, 3, 3)],
    ids=["nothing was planned", "nothing was written", "all was written"],
)
def test_a_query_that_was_not_cut_within_a_micro_batch_is_not_started(
    tmp_path: Path, begun: int, over: int, committed: int, planned: int, ends_at: int
) -> None:
    cut(tmp_path, begun=begun, over=over, committed=committed, planned=planned)
    note_plans(tmp_path, plans())
    finishing = Finishing(tmp_path)
    finish_cut_batch(tmp_path, finishing.start)
    assert finishing.started == []
    assert max(batches_in(tmp_path / "spark" / "commits")) == ends_at


def test_a_micro_batch_that_cannot_be_finished_is_named_and_its_query_goes_on_under_another_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = cut(tmp_path, begun=3, over=2, committed=2, planned=3)
    note_plans(tmp_path, plans())
    finishing = Finishing(tmp_path, fails=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(MAX_FINISHES + 1):
            finish_cut_batch(tmp_path, finishing.start)
    assert len(finishing.started) == MAX_FINISHES
    assert "cannot be finished: its rows may come twice" in caplog.text
    found = Checkpoint.find(tmp_path)
    assert found is not None
    assert found.job_id != query.job_id
