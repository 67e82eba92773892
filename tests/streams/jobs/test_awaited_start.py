"""Jobs that are started while a server is away: attempts until it answers, and what is said meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.errors import NameRefused, Unreachable
from millstream.streams.errors import JobError
from millstream.streams.jobs.awaited_start import AwaitedPipeline, AwaitedStart
from millstream.streams.jobs.handle import JobHandle
from millstream.streams.jobs.pipeline import Pipeline
from millstream.streams.jobs.progress import JobProgress

AWAY = "Nothing answers at 127.0.0.1:9876."
LIMIT_S = 60.0


class Ended:
    """A pipeline that has read seven rows."""

    def __init__(self) -> None:
        self.is_stopped = False

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=7, state="ended")

    def wait(self, timeout_s: float) -> bool:
        return True

    def failure(self) -> JobError | None:
        return None

    def stop(self) -> None:
        self.is_stopped = True


class Server:
    """Attempts to start, each of which has an answer; the clock goes on with the pauses between them."""

    def __init__(self, *answers: Pipeline | Exception) -> None:
        self._answers = list(answers)
        self._pauses: queue.Queue[bool] = queue.Queue()
        self._asked: queue.Queue[float] = queue.Queue()
        self.now_s = 0.0

    def start(self) -> Sequence[Sequence[Pipeline]]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [[answer]]

    def pause(self, seconds: float) -> bool:
        self._asked.put(seconds)
        gives_up = self._pauses.get()
        self.now_s += seconds
        return gives_up

    def pauses(self) -> float:
        """Return when the next pause has begun; how long it is to be."""
        return self._asked.get(timeout=LIMIT_S)

    def end_pause(self) -> None:
        """Let the next attempt begin."""
        self._pauses.put(False)

    def go_on(self) -> float:
        """Let the next attempt begin; how long the pause before it was."""
        self.end_pause()
        return self.pauses()

    def awaited(self, limit_s: float) -> JobHandle:
        start = AwaitedStart(self.start, Unreachable(AWAY), limit_s=limit_s, clock=lambda: self.now_s, pause=self.pause)
        return JobHandle("j", [AwaitedPipeline(start, 0)])


def test_a_job_starts_once_the_server_answers_and_says_until_then_what_it_waits_for() -> None:
    server = Server(Unreachable(AWAY), Ended())
    job = server.awaited(30)
    told = job.progress()
    assert (told.state, told.rows_in) == ("running", 0)
    assert AWAY in str(told.trouble)
    assert "fails in 30 s" in str(told.trouble)
    assert not job.wait(0)
    assert server.pauses() == 1.0
    server.end_pause()
    server.pauses()
    assert "fails in 29 s" in str(job.progress().trouble)
    server.end_pause()
    assert job.wait(LIMIT_S)
    told = job.progress()
    assert [event.kind for event in told.events] == ["server_away", "server_back"]
    assert replace(told, events=()) == JobProgress(rows_in=7, state="ended")


def test_a_job_whose_server_does_not_come_fails_when_the_time_is_up() -> None:
    server = Server(*[Unreachable(AWAY)] * 3)
    job = server.awaited(2.5)
    assert [server.go_on() for _ in range(3)] == [1.0, 1.0, 0.5]
    with pytest.raises(JobError, match=r"waited 2\.5 s") as failure:
        job.wait(LIMIT_S)
    assert (failure.value.name, failure.value.exit_code, job.progress().state) == ("START_TIMED_OUT", 3, "failed")


def test_what_no_waiting_mends_ends_the_wait() -> None:
    server = Server(NameRefused("TOPIC_NOT_FOUND", "The topic t does not exist."))
    job = server.awaited(30)
    server.go_on()
    with pytest.raises(JobError, match="The topic t does not exist"):
        job.wait(LIMIT_S)


def test_a_job_that_is_stopped_while_it_waits_never_starts() -> None:
    attempts: list[int] = []
    start = AwaitedStart(lambda: attempts.append(1) or [], Unreachable(AWAY), limit_s=1e6)  # type: ignore[func-returns-value]
    job = JobHandle("j", [AwaitedPipeline(start, 0)])
    stopping = threading.Thread(target=job.stop)
    stopping.start()
    stopping.join(LIMIT_S)
    assert job.wait(0)
    assert (job.progress().state, attempts) == ("ended", [])
