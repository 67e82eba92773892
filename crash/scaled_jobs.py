"""S21, kills of all that a job runs in while its tasks and its source's queues become more and fewer."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from crash.job_cluster import JobCluster
from crash.operator_job import (
    EVENTS,
    KEYS,
    NAMES,
    WATERMARK_DELAY_S,
    Event,
    OperatorJob,
    database_tables,
    expected_rows,
    name_message,
)
from crash.programme import ProgrammeRun, scratch_directory
from crash.sink_databases import POSTGRESQL_SKIPPED, Rows, SinkDatabase, postgresql, sqlite
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig

__all__ = ["kill_scaled_jobs"]

_CAMPAIGN_ROUNDS: Final = 50
"""Rounds over one topic and one checkpoint; then both begin anew, so that comparing stays cheap."""

_EVENTS_A_ROUND: Final = 40
_TASKS: Final = (2, 5, 1)
_QUEUES: Final = (4, 8)
_KINDS: Final = ("driver", "executor", "worker", "broker", "server")
_MOMENTS: Final = ("now", "planned", "sent", "hidden", "committed", "noted")
"""What a kill waits for; see `_Campaign._seen`."""

_MOMENT_LIMIT_S: Final = 120.0
"""Seconds that a kill waits for its moment."""

_PROGRESS_LIMIT_S: Final = 900.0
"""Seconds in which a job must have read all that was sent, whatever was killed."""

_POLL_S: Final = 0.02
_LOOK_S: Final = 1.0
_LONG_AGO: Final = datetime(1970, 1, 1)
_KILLS, _CLEAN = "kills", "clean"


def kill_scaled_jobs(run: ProgrammeRun) -> None:
    """S21. 6 rounds (CI), 50 (full), 1,000 (soak).

    A round sends events and kills, at a moment of chance in the micro-batch that they make: the job's driver or its
    Java, an executor of Spark's cluster, a Python worker, the broker or the job server; in each third round another one
    of them a moment later. Before each third round the job is paused and resumed with another number of tasks, on
    Spark's cluster and beside its driver by turns; half-way its topic gets more queues. At the end all sinks have what
    plain Python makes of the messages, and so have those of a second job that nobody disturbs.
    """
    rounds = run.by_size(6, 50, 1_000)
    for first in range(0, rounds, _CAMPAIGN_ROUNDS):
        _run_campaign(run, min(_CAMPAIGN_ROUNDS, rounds - first))


def _run_campaign(run: ProgrammeRun, rounds: int) -> None:
    with scratch_directory() as root:
        with ExitStack() as running:
            tables = database_tables([_KILLS, _CLEAN])
            server = running.enter_context(postgresql(tables))
            if server is None:
                run.counts[POSTGRESQL_SKIPPED] = 1
            cluster = JobCluster(root, running)
            client = running.enter_context(BlockingClient(cluster.nameserver))
            databases = [sqlite(root, tables), *([server] if server is not None else [])]
            campaign = _Campaign(run, root, cluster, client, databases)
            campaign.kill_and_compare(rounds)
        # Not while the files change that are to be kept.
        for number, failure in enumerate(campaign.failures):
            run.fail(failure, None if number else root)


class _Campaign:
    """One job and its topics, from the first round to the comparison."""

    def __init__(
        self,
        run: ProgrammeRun,
        root: Path,
        cluster: JobCluster,
        client: BlockingClient,
        databases: Sequence[SinkDatabase],
    ) -> None:
        self.failures: list[str] = []
        self._run = run
        self._cluster = cluster
        self._client = client
        self._databases = databases
        self._jobs = {name: OperatorJob(name, root, databases) for name in (_KILLS, _CLEAN)}
        self._rounds_log = root / "rounds.log"
        self._events: list[Event] = []
        self._named: list[int] = []
        self._until = _LONG_AGO
        """The event time that has come for sure."""

        self._used = dict.fromkeys(_KINDS, 0)
        self._tasks = 0
        self._is_on_cluster = True

    def kill_and_compare(self, rounds: int) -> None:
        """All rounds, or those up to the first from which the job does not go on; then the comparison."""
        self._client.create_topic(TopicConfig(EVENTS, read_queues=_QUEUES[0], write_queues=_QUEUES[0]))
        self._client.create_topic(TopicConfig(NAMES, read_queues=2, write_queues=2))
        self._submit(_KILLS, self._settings())
        self._send(_EVENTS_A_ROUND)
        if not self._has_read_all("the start"):
            return
        for number in range(rounds):
            if number % 3 == 1:
                self._rescale()
            if number == rounds // 2:
                self._client.add_queues(EVENTS, _QUEUES[1])
                self._note(f"{EVENTS} has {_QUEUES[1]} queues")
            self._round(number)
            if not self._has_read_all(f"round {number}"):
                return
            found = self._ask(lambda: self._cluster.jobs.describe(_KILLS))
            trouble = found["failures"][-1]["message"] if found["failures"] else ""
            self._note(f"round {number} is over; {found['restarts']} restarts so far; {trouble}")
            self._run.count("rounds")
        self._close_windows()
        self._compare(_KILLS)
        if not self.failures:
            self._ask(lambda: self._cluster.jobs.change(_KILLS, "pause"))
            self._submit(_CLEAN, {"parallelism.default": "2"})
            self._compare(_CLEAN)

    # inside

    def _round(self, number: int) -> None:
        before = {moment: self._seen(moment) for moment in _MOMENTS}
        self._send(_EVENTS_A_ROUND)
        kinds = [kind for kind in _KINDS if self._is_on_cluster or kind != "executor"]
        self._run.random.shuffle(kinds)
        kinds.sort(key=self._used.__getitem__)
        for kind in kinds[: 2 if number % 3 == 2 else 1]:
            moment = self._run.random.choice(_MOMENTS)
            self._wait_for(moment, before[moment])
            time.sleep(self._run.random.choice((0.0, 0.0, 0.05, 0.3, 1.0)))
            self._used[kind] += 1
            self._kill(kind)
            self._note(f"round {number}: {kind} killed when {moment}")

    def _send(self, count: int) -> None:
        """Messages of rising event time, one after the other: so none is late, whatever queue it comes to."""
        for id in range(len(self._events), len(self._events) + count):
            event = Event(id, self._run.random.randrange(KEYS), self._run.random.randrange(100))
            self._events.append(event)
            self._client.send(event.message())
            if self._run.random.random() < 0.7:
                self._named.append(id)
                self._client.send(name_message(id))

    def _kill(self, kind: str) -> None:
        match kind:
            case "broker" | "server":
                part = "jobs" if kind == "server" else kind
                self._cluster.kill(part)
                time.sleep(self._run.random.choice((0.0, 1.0, 5.0)))
                self._cluster.start(part)
            case "driver":
                python = self._run.random.random() < 0.5
                self._kill_one(self._cluster.drivers if python else self._cluster.java_of_drivers)
            case "executor":
                self._kill_one(self._cluster.executors)
            case _:
                self._kill_one(self._cluster.python_workers)
        self._run.count(f"{kind}_kills")

    def _kill_one(self, find: Callable[[], Sequence[int]]) -> None:
        """One of chance; those that are just being started are waited for."""
        limit_s = time.monotonic() + _PROGRESS_LIMIT_S
        while not (found := find()):
            if time.monotonic() > limit_s:
                self.failures.append(f"nothing to kill was started: {find.__name__}")
                return
            time.sleep(_LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._run.random.choice(sorted(found)), signal.SIGKILL)

    def _rescale(self) -> None:
        self._tasks = (self._tasks + 1) % len(_TASKS)
        self._is_on_cluster = not self._is_on_cluster
        settings = self._settings()
        self._ask(lambda: self._cluster.jobs.change(_KILLS, "pause"))
        self._ask(lambda: self._cluster.jobs.update(_KILLS, text=None, settings=settings, apply=True))
        self._ask(lambda: self._cluster.jobs.change(_KILLS, "resume"))
        self._run.count("rescaled")
        self._note(f"resumed with {settings}")

    def _settings(self) -> dict[str, str]:
        tasks = {"parallelism.default": str(_TASKS[self._tasks])}
        return tasks | ({"spark.master": self._cluster.master} if self._is_on_cluster else {})

    def _submit(self, name: str, settings: dict[str, str]) -> None:
        self._jobs[name].create_topics(self._client)
        text = self._jobs[name].script()
        self._ask(
            lambda: self._cluster.jobs.submit(
                name=name, kind="sql", text=text, settings=settings, cores=2, memory_mb=600
            )
        )

    def _ask(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The server's answer; it refuses while it does not lead yet."""
        limit_s = time.monotonic() + _PROGRESS_LIMIT_S
        while True:
            try:
                return ask()
            except MillstreamError:
                if time.monotonic() > limit_s:
                    raise
            time.sleep(_LOOK_S)

    def _seen(self, moment: str) -> frozenset[Hashable]:
        """What is there of a kind: a new member says that the job got further."""
        match moment:
            case "planned":
                return frozenset(self._cluster.checkpoints.glob(f"{_KILLS}/*/spark*/offsets/*"))
            case "noted":
                return frozenset(self._cluster.checkpoints.glob(f"{_KILLS}/*/spark*/commits/*"))
            case "sent":
                ranges = self._client.queue_ranges(f"{_KILLS}-sums")
                return frozenset((held.range.queue_id, held.range.max_offset) for held in ranges)
            case "hidden":
                return frozenset(self._jobs[_KILLS].directory.glob(f"{_KILLS}/*/.*"))
            case "committed":
                return frozenset(self._databases[0].rows(f"{_KILLS}_joined"))
            case _:
                return frozenset()

    def _wait_for(self, moment: str, before: frozenset[Hashable]) -> None:
        limit_s = time.monotonic() + (_MOMENT_LIMIT_S if moment != "now" else 0.0)
        while time.monotonic() < limit_s:
            # Files and directories go while they are looked for.
            with contextlib.suppress(FileNotFoundError):
                if not self._seen(moment) <= before:
                    return
            time.sleep(_POLL_S)

    def _has_read_all(self, what: str) -> bool:
        """Whether what needs no later events stands in all sinks in time; nothing may be there twice."""
        wanted = self._expected()
        early = {name: wanted[name] for name in ("sums", "joined")}
        return self._comes_true(lambda: self._is_equal(_KILLS, early, what), what, _KILLS)

    def _is_equal(self, job: str, wanted: dict[str, Rows], what: str) -> bool:
        """Whether the sinks have these rows; a row too much that is never taken back is a failure."""
        for sink, name, rows in self._jobs[job].found(self._client):
            if name in wanted and rows != wanted[name]:
                if name != "sums" and (extra := rows - wanted[name]):
                    words = f"{what}: {sink} has {extra.total()} rows too much, such as {next(iter(extra))}"
                    self.failures.append(words)
                return False
        return True

    def _comes_true(self, is_there: Callable[[], bool], what: str, job: str) -> bool:
        limit_s = time.monotonic() + _PROGRESS_LIMIT_S
        while not is_there():
            if self.failures:
                return False
            state = self._ask(lambda: self._cluster.jobs.describe(job))
            if state["state"] == "failed" or time.monotonic() > limit_s:
                last = state["failures"][-1]["message"] if state["failures"] else "it has told of no failure"
                self.failures.append(f"{what}: the job {job} is {state['state']} and did not go on: {last}")
                return False
            time.sleep(_LOOK_S)
        return True

    def _close_windows(self) -> None:
        """An event of a key of its own for each queue, so late that all windows before it are over."""
        first = len(self._events) + 1_000
        for number, queue in enumerate(self._client.queues(EVENTS)):
            event = Event(first + number, -1, 0)
            self._events.append(event)
            self._client.send_many([event.message()], queue=queue)
        self._until = Event(first, -1, 0).moment - timedelta(seconds=WATERMARK_DELAY_S)

    def _expected(self) -> dict[str, Rows]:
        return expected_rows(self._events, self._named, until=self._until)

    def _compare(self, job: str) -> None:
        wanted = self._expected()
        what = f"the comparison of {job}"
        is_equal = self._comes_true(lambda: self._is_equal(job, wanted, what), what, job)
        for sink, name, rows in self._jobs[job].found(self._client):
            self._run.count("rows", rows.total())
            for words, those in (("too much", rows - wanted[name]), ("missing", wanted[name] - rows)):
                if those and not is_equal:
                    self.failures.append(f"{what}: {sink}: {those.total()} rows {words}, such as {next(iter(those))}")

    def _note(self, words: str) -> None:
        with self._rounds_log.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {words}\n")
