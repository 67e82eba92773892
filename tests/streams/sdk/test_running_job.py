"""A job in the user's own process: how it is waited for and stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from millstream.streams.errors import JobError
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.changelog import RowKind
from millstream.streams.sdk.running import RunningJob, print_rows


class Played:
    """A handle of a job that ends after some looks, or fails."""

    name = "played"

    def __init__(self, looks: int | None = None, failure: JobError | None = None) -> None:
        self.looks = looks
        self.failure = failure
        self.stopped = 0

    def wait(self, timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.looks is not None:
            self.looks -= 1
        return self.looks is not None and self.looks <= 0

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=3, state="running" if self.looks is None or self.looks > 0 else "ended")

    def stop(self) -> None:
        self.stopped += 1


def running(played: Played, scratch: Any = None) -> RunningJob:
    return RunningJob(cast("JobHandle", played), scratch)


def test_it_is_waited_for_to_its_end() -> None:
    job = running(Played(looks=3))
    assert job.wait()
    assert (job.name, job.status, job.progress().rows_in) == ("played", "ended", 3)


def test_it_may_be_awaited() -> None:
    async def ended() -> JobProgress:
        return await running(Played(looks=2))

    assert asyncio.run(ended()).state == "ended"


def test_a_failure_is_raised_to_whoever_waits() -> None:
    job = running(Played(failure=JobError("JOB_FAILED", "no")))
    with pytest.raises(JobError, match="no"):
        job.wait()


def test_a_block_stops_it_and_takes_its_directory_away(tmp_path: Path) -> None:
    scratch = tempfile.TemporaryDirectory(dir=tmp_path)
    played = Played()
    with running(played, scratch) as job:
        assert not job.wait(0)
    assert played.stopped == 1
    assert not Path(scratch.name).exists()
    job.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_is_then_as_it_was(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    played = Played()
    job = running(played)
    wait = played.wait

    def interrupted(timeout_s: float) -> bool:
        # Sent from within the wait, when the signal is taken over for sure.
        os.kill(os.getpid(), number)
        return wait(timeout_s)

    played.wait = interrupted  # type: ignore[method-assign]
    assert job.until_interrupted().state == "running"
    assert played.stopped == 1
    assert signal.getsignal(number) == before


def test_rows_are_shown_with_their_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ResultRows("sum", ("a", "b"), [(1, None), (2, "x")]))
    print_rows(ResultRows("n", ("a",), [(1,), (1,)], [RowKind.INSERT, RowKind.DELETE]))
    assert capsys.readouterr().out == "sum: a=1, b=None\nsum: a=2, b=x\nn +I: a=1\nn -D: a=1\n"
