"""The job that makes a shared driver die is found and gets a driver of its own; the others keep theirs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_records import job
from played_drivers import PlayedDriver
from test_job_server import ask, submit, until
from test_plan_work import assigned, planned

from conftest import Served
from millstream.job_server import fleet
from millstream.job_server.isolation import ENDS_BEFORE_SEARCH, FORGET_S, after_driver_end
from millstream.job_server.job_record import JobRecord
from millstream.job_server.plan_work import DriverView, StartDriver, StopJobs
from millstream.model.backoff import Backoff
from patience import eventually

NOW_MS = 10_000_000


def end(
    records: dict[str, JobRecord],
    guilty: str,
    *,
    now_ms: int = NOW_MS,
    has_room: bool = True,
    queries: Mapping[str, str] | None = None,
) -> None:
    """The driver with the guilty job dies."""
    dead = [one for one in records.values() if not one.isolation and one.is_apart is records[guilty].is_apart]
    others = [one for one in records.values() if one not in dead]
    shared = {name: (query,) for name, query in (queries or {}).items()}
    records.update(after_driver_end(dead, others, now_ms, has_room=has_room, queries=shared))


@given(count=st.integers(2, 40), place=st.integers(0, 39))
def test_the_guilty_one_of_any_number_is_isolated_and_nobody_else_is(count: int, place: int) -> None:
    records = {f"j{number}": job(f"j{number}") for number in range(count)}
    guilty = f"j{place % count}"
    ends = 0
    while not records[guilty].isolation:
        end(records, guilty, now_ms=NOW_MS + ends)
        ends += 1
        assert ends <= ENDS_BEFORE_SEARCH + math.ceil(math.log2(count))
    assert [one.name for one in records.values() if one.isolation] == [guilty]
    assert not any(one.is_suspect or one.is_apart for one in records.values())
    assert records[guilty].has_own_driver
    (event,) = records[guilty].events
    assert event.kind == "isolated"
    assert f"ended {records[guilty].driver_ends} times" in records[guilty].isolation


def test_a_driver_that_dies_now_and_then_brings_nobody_under_suspicion() -> None:
    records = {name: job(name) for name in "ab"}
    for number in range(10):
        end(records, "a", now_ms=NOW_MS + int(number * FORGET_S * 1000))
    assert {one.driver_ends for one in records.values()} == {1}
    assert not any(one.is_suspect for one in records.values())


def test_without_room_for_a_second_driver_they_stay_together() -> None:
    records = {name: job(name) for name in "abcd"}
    for _ in range(10):
        end(records, "a", has_room=False)
    assert not any(one.is_suspect or one.is_apart or one.isolation for one in records.values())


def test_a_job_that_is_alone_in_its_driver_keeps_it() -> None:
    records = {"a": job("a")}
    for _ in range(10):
        end(records, "a")
    assert not records["a"].isolation


def test_the_one_that_was_there_each_time_is_isolated_at_once() -> None:
    records = {"a": job("a")}
    end(records, "a")
    end(records, "a")
    records["b"] = job("b")
    end(records, "a")
    assert records["a"].isolation
    assert not records["b"].isolation


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(0, 29))
def test_a_query_is_parted_only_where_no_other_job_is_suspect(numbers: list[int], place: int) -> None:
    records = {f"j{number}": job(f"j{number}") for number in range(len(numbers))}
    queries = {f"j{place}": f"q{number}" for place, number in enumerate(numbers)}
    guilty = f"j{place % len(numbers)}"
    while not records[guilty].isolation:
        end(records, guilty, queries=queries)
        parted = {
            query
            for query in queries.values()
            if len({records[name].is_apart for name, one in queries.items() if one == query}) > 1
        }
        assert parted <= {queries[guilty]}
        if parted:
            suspects = {queries[name] for name, record in records.items() if record.is_suspect}
            assert suspects == parted
    assert [one.name for one in records.values() if one.isolation] == [guilty]


def test_those_that_are_apart_start_in_a_second_driver_once_the_other_suspects_run() -> None:
    near = job("near", is_suspect=True, state="queued")
    far = job("far", is_suspect=True, is_apart=True, state="queued")
    assert planned(near, far) == [StartDriver(True, 1, 1024, ("near",))]
    starting = msgspec.structs.replace(near, state="starting")
    assert planned(starting, far, drivers=(DriverView("1", True, 1, 1024, assigned(near)),)) == []
    runs = msgspec.structs.replace(near, state="running")
    driver = DriverView("1", True, 1, 1024, assigned(near))
    assert planned(runs, far, drivers=(driver,)) == [StartDriver(True, 1, 1024, ("far",), True)]
    second = DriverView("2", True, 1, 1024, assigned(far), apart=True)
    assert planned(runs, far, drivers=(driver, second)) == []
    cleared = msgspec.structs.replace(far, is_suspect=False, is_apart=False)
    assert planned(runs, cleared, drivers=(driver, second)) == [StopJobs("2", ("far",))]


def test_an_isolated_job_starts_once_those_that_were_in_its_driver_run() -> None:
    guilty = job("guilty", isolation="It has a driver of its own.", driver_ended_at_ms=NOW_MS, state="queued")
    other = job("other", driver_ended_at_ms=NOW_MS, state="starting")
    driver = DriverView("1", True, 1, 1024, assigned(other))
    own = [StartDriver(False, 1, 1024, ("guilty",))]
    assert planned(guilty, other, drivers=(driver,)) == []
    assert planned(guilty, msgspec.structs.replace(other, state="running"), drivers=(driver,)) == own
    elsewhere = msgspec.structs.replace(other, driver_ended_at_ms=NOW_MS - 1)
    assert planned(guilty, elsewhere, drivers=(driver,)) == own


async def test_of_jobs_whose_driver_dies_again_and_again_one_is_isolated_and_the_others_run_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "ISOLATED_WAIT_S", 0.0)
    monkeypatch.setattr(fleet, "_BACKOFF", Backoff(0.001, 0.001))
    for name in "abcd":
        await submit(served, name)
        await until(served, name, "running")
    assert served.server.leadership is not None
    jobs = served.server.leadership.book.jobs

    def driver_of(name: str) -> PlayedDriver:
        return [one for one in served.drivers.made if any(name in names for names in one.starts)][-1]

    for _ in range(ENDS_BEFORE_SEARCH + 2):
        await eventually(lambda: all(one.state == "running" for one in jobs.values()) and not driver_of("c").is_over)
        driver_of("c").die(-9)
    await eventually(lambda: all(one.state == "running" for one in jobs.values()) and not driver_of("c").is_over)
    assert [name for name, one in jobs.items() if one.isolation] == ["c"]
    found = await ask(served.client.describe, "c")
    assert "It has a driver of its own since" in found["isolation"]
    assert "isolated" in [one["kind"] for one in found["events"]]
    await eventually(lambda: len(served.drivers.running) == 2)
    assert driver_of("c").starts == [["c"]]
