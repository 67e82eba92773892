"""Events of jobs as the job server keeps and shows them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from job_records import job
from test_job_commands import command
from test_job_savepoints import keep_checkpoint
from test_job_server import ask, submit, until

from conftest import Served
from millstream.job_server.driver_messages import JobsProgress
from millstream.job_server.job_record import MAX_RECORDED_EVENTS, RecordedEvent, decode_job, encode_record
from millstream.streams.jobs.job_events import JobEvent as DriverEvent
from millstream.streams.jobs.progress import JobProgress
from patience import eventually


def told(*events: DriverEvent, **values: Any) -> JobsProgress:
    """The progress of a job as its driver tells it."""
    return JobsProgress({"a": asdict(JobProgress(events=events, **values))})


async def shown(served: Served) -> list[tuple[str, str]]:
    found = await ask(served.client.describe, "a")
    return [(one["kind"], one["words"]) for one in found["events"]]


async def test_what_a_driver_tells_again_and_again_is_kept_once_and_goes_on_with_the_next_driver(
    served: Served,
) -> None:
    await submit(served)
    await until(served, "a", "running")
    added = DriverEvent(1_000, "queue_added", "t: queue b/4; read from here on.", number=7)
    away = DriverEvent(2_000, "server_away", "The broker does not answer.", number=9)
    (driver,) = served.drivers.running
    driver.tell_event(told(added))
    driver.tell_event(told(added, away))
    assert await shown(served) == [("queue_added", added.words), ("server_away", away.words)]
    driver.die(-9)
    await eventually(lambda: len(served.drivers.made) == 2)
    await until(served, "a", "running")
    back = DriverEvent(3_000, "server_back", "It goes on.", number=1)
    served.drivers.made[1].tell_event(told(back))
    found = await shown(served)
    assert ("server_back", "It goes on.") in found
    (restarted,) = [words for kind, words in found if kind == "restarted"]
    assert "signal 9" in restarted


async def test_the_newest_checkpoint_is_an_event_and_a_savepoint_is_one(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await submit(served)
    await until(served, "a", "running")
    (driver,) = served.drivers.running
    for batches in (1, 2):
        driver.tell_event(told(batches=batches, checkpoint_ms=batches * 1_000))
    assert await shown(served) == [("checkpoint_completed", "2 micro-batches since the start of the job.")]
    await ask(served.client.change, "a", "pause")
    await until(served, "a", "paused")
    keep_checkpoint(served, "a")
    await ask(served.client.savepoint, "a", directory=str(tmp_path / "saved"))
    (written,) = await shown(served)
    assert written[0] == "savepoint_written"
    assert str(tmp_path / "saved") in written[1]
    assert await command(served, "describe", "a", "-o", "table") == 0
    assert "Z savepoint_written" in capsys.readouterr().out
    (listed,) = await ask(served.client.jobs)
    assert "events" not in listed


def test_a_record_keeps_its_last_events_and_one_without_any_is_read() -> None:
    record = job("a")
    for number in range(MAX_RECORDED_EVENTS + 3):
        record = record.note(RecordedEvent(number, "restarted", "again"))
    assert decode_job(encode_record(record)) == record
    assert [event.at_ms for event in record.events] == list(range(3, MAX_RECORDED_EVENTS + 3))
    before = encode_record(job("b")).replace(b'"events":[],', b"")
    assert b"events" not in before
    assert decode_job(before).events == ()
