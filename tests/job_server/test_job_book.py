"""Which records of the topic count: the newest, of a server that led when it was written."""

from __future__ import annotations

import pytest
from job_records import job

from millstream.job_server.errors import JobServerError
from millstream.job_server.job_book import SharedJobBook
from millstream.job_server.job_record import (
    LEADER_KEY,
    MAX_FAILURES,
    JobFailure,
    LeaderRecord,
    Submission,
    check_submission,
    decode_job,
    encode_record,
)


def led(epoch: int, server: str = "one") -> bytes:
    return encode_record(LeaderRecord(epoch=epoch, server=server, url="http://x"))


def told(name: str, epoch: int, **values: object) -> bytes:
    return encode_record(job(name, epoch=epoch, **values))


def test_the_newest_record_of_a_name_counts() -> None:
    book = SharedJobBook()
    for key, body in ((LEADER_KEY, led(1)), ("a", told("a", 1)), ("a", told("a", 1, state="running"))):
        book.apply(key, body)
    assert book.jobs["a"].state == "running"
    assert not book.spoiled


def test_what_a_server_wrote_that_had_lost_the_jobs_is_ignored_and_noted() -> None:
    book = SharedJobBook()
    for key, body in ((LEADER_KEY, led(1)), ("a", told("a", 1)), (LEADER_KEY, led(2, "two"))):
        book.apply(key, body)
    book.apply("a", told("a", 1, state="cancelled"))
    assert book.jobs["a"].state == "queued"
    assert book.spoiled == {"a"}
    book.apply("a", told("a", 2, state="running"))
    assert (book.jobs["a"].state, book.spoiled) == ("running", set())


def test_records_that_stand_before_the_leaders_count_whatever_their_epoch() -> None:
    book = SharedJobBook()
    for key, body in (("a", told("a", 3)), ("b", told("b", 1)), (LEADER_KEY, led(7))):
        book.apply(key, body)
    assert sorted(book.jobs) == ["a", "b"]


def test_of_two_servers_that_took_one_epoch_the_first_has_it() -> None:
    book = SharedJobBook()
    for server in ("one", "two"):
        book.apply(LEADER_KEY, led(4, server))
    assert book.leader is not None
    assert book.leader.server == "one"


def test_only_a_job_that_is_over_is_deleted() -> None:
    book = SharedJobBook()
    book.apply("a", told("a", 1, wanted="cancelled"))
    book.apply("b", told("b", 1))
    book.apply("a", None)
    book.apply("b", None)
    assert list(book.jobs) == ["b"]
    assert book.spoiled == {"b"}


def test_a_record_of_a_newer_format_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    book = SharedJobBook()
    book.apply("a", b'{"version": 2, "name": "a"}')
    book.apply("b", b"no record")
    assert not book.jobs
    assert "version 2" in caplog.text


def test_a_record_reads_back_as_it_was_written() -> None:
    record = job("a", cores=2, settings={"x": "y"}, failures=(JobFailure(1, "JOB_FAILED", "MS-6003", "why"),))
    assert decode_job(encode_record(record)) == record


def test_the_last_failures_are_kept() -> None:
    record = job("a")
    for number in range(MAX_FAILURES + 3):
        record = record.fail(JobFailure(number, "JOB_FAILED", "MS-6003", "why " * 10_000))
    assert [one.at_ms for one in record.failures] == list(range(3, MAX_FAILURES + 3))
    assert len(record.failures[0].message) < 5_000


@pytest.mark.parametrize("name", ["", "!leader", "a/b", ".a", "a" * 101, "a~2", "a+1", "ü"])
def test_names_that_are_none_of_a_directory_are_refused(name: str) -> None:
    with pytest.raises(JobServerError) as refused:
        check_submission(Submission(name=name, text=""))
    assert refused.value.name == "ILLEGAL_JOB"


def test_a_text_over_the_limit_is_refused() -> None:
    check_submission(Submission(name="a", text="x" * 1024 * 1024))
    with pytest.raises(JobServerError):
        check_submission(Submission(name="a", text="ü" * 1024 * 1024))
