"""The jobs of a shell or a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError
from millstream.streams.jobs.job_book import COLUMNS, JobBook, directory_of
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession

TABLES = """
CREATE TABLE bids (item STRING) WITH ('connector' = 'rocketmq', 'topic' = 'bids');
CREATE TABLE out (item STRING) WITH ('connector' = 'print');
CREATE TABLE log (item STRING) WITH ('connector' = 'print');
"""


@dataclass
class Played:
    """A job that ends when it is told to."""

    now: JobProgress = field(default_factory=JobProgress)
    failure: JobError | None = None

    def progress(self) -> JobProgress:
        return self.now

    def wait(self, timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.now.state != "running"

    def stop(self) -> None:
        self.now = replace(self.now, state="ended")


def plan(script: str) -> JobPlan:
    found = SqlSession().compile(TABLES + script)[-1]
    assert isinstance(found, JobPlan)
    return found


def test_a_job_is_named_by_its_tables_or_by_the_setting() -> None:
    book = JobBook()
    assert book.free_name(plan("INSERT INTO out SELECT item FROM bids")) == "insert-into-out"
    both = "BEGIN STATEMENT SET; INSERT INTO out SELECT item FROM bids; INSERT INTO log SELECT item FROM bids; END"
    assert book.free_name(plan(both)) == "insert-into-out-log"
    assert book.free_name(plan("SET 'pipeline.name' = 'alerts'; INSERT INTO out SELECT item FROM bids")) == "alerts"


def test_a_name_that_runs_already_gets_a_number_and_is_free_again_after_its_end() -> None:
    book = JobBook()
    insert = plan("INSERT INTO out SELECT item FROM bids")
    book.add("insert-into-out", Played())
    assert book.free_name(insert) == "insert-into-out-2"
    book.stop("insert-into-out")
    assert book.free_name(insert) == "insert-into-out"


def test_jobs_are_listed_with_their_progress() -> None:
    book = JobBook()
    counts = {"t": 3, "u": 1}
    progress = JobProgress(7, 1, 2, {"out": 3, "log": 1}, 1, 99.6, 0, 5, without_event_time=counts)
    book.add("a", Played(replace(progress, trouble="Waits for a broker.")))
    assert [dict(zip(COLUMNS, row, strict=True)) for row in book.rows()] == [
        {
            "job": "a",
            "state": "running",
            "rows_in": 7,
            "rows_out": 4,
            "rows_per_s": 100,
            "behind": 5,
            "watermark": "1970-01-01T00:00:00Z",
            "late": 2,
            "malformed": 1,
            "without_event_time": 4,
            "trouble": "Waits for a broker.",
        }
    ]


def test_a_stopped_job_is_listed_as_stopped_and_is_no_news() -> None:
    book = JobBook()
    book.add("a", Played())
    assert "stopped" in book.stop("a")
    assert [row[1] for row in book.rows()] == ["stopped"]
    assert (list(book.news()), book.running) == ([], [])
    assert "had ended" in book.stop("a")


def test_the_end_of_a_job_is_told_once() -> None:
    book = JobBook()
    book.add("good", Played(JobProgress(state="ended")))
    book.add("bad", Played(failure=JobError("JOB_FAILED", "The job failed: no disk.")))
    book.add("still", Played())
    told = list(book.news())
    assert told[0] == "The job good has ended."
    assert "The job bad has failed: The job failed: no disk." in told[1]
    assert (len(told), list(book.news()), book.running) == (2, [], ["still"])


def test_a_job_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    book = JobBook()
    book.add("insert-into-out", Played())
    with pytest.raises(MillstreamError, match='Did you mean "insert-into-out"') as refused:
        book.stop("insert-into-ot")
    assert refused.value.name == "SQL_UNKNOWN_NAME"


def test_a_forgotten_job_is_not_listed_and_ended_ones_are_named() -> None:
    book, ending = JobBook(), Played()
    book.add("a", ending)
    book.add("b", Played())
    ending.stop()
    assert book.ended == []
    assert list(book.news()) == ["The job a has ended."]
    assert (book.ended, book.running) == (["a"], ["b"])
    book.forget("a")
    book.forget("none")
    assert [row[0] for row in book.rows()] == ["b"]


def test_any_name_is_one_directory() -> None:
    assert directory_of("../a/b") == "%2E%2E%2Fa%2Fb"
    assert directory_of("insert-into-out") == "insert-into-out"
