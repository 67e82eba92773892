"""S21, kills of all that a job runs in while its tasks and its source's queues become more and fewer."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from crash.event_feed import EventFeed
from crash.job_cluster import JobCluster, make_class_archive
from crash.operator_job import EVENTS, NAMES, OperatorJob, database_tables, differences
from crash.programme import ProgrammeRun, scratch_directory
from crash.sink_databases import MARIADB_SKIPPED, POSTGRESQL_SKIPPED, SinkDatabase, mariadb, postgresql, sqlite
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig

__all__ = ["SCALING", "Life", "kill_scaled_jobs", "rounds_of_lives"]

_CAMPAIGN_ROUNDS: Final = 50
"""Rounds over one cluster, one topic and one checkpoint; then all begin anew, so that comparing stays cheap."""

_EVENTS_BEFORE: Final = 12
"""Events that a round sends before it breaks something, and as many behind it."""

_QUEUES: Final = (4, 8)


class Life(NamedTuple):
    """How a job runs from one scaling to the next."""

    tasks: int
    is_on_cluster: bool


_LIVES: Final = (Life(2, False), Life(5, True), Life(1, False), Life(2, True), Life(5, False), Life(1, True))
"""In this order and over again: 2, 5 and 1 tasks, each of them beside the driver and on Spark's cluster."""

SCALING: Final = "scaling"
_BESIDE_DRIVER: Final = (*["worker"] * 5, *["broker"] * 4, "server")
_ON_CLUSTER: Final = (*["executor"] * 4, *["worker"] * 3, *["broker"] * 2, "server")
_DRIVERS: Final = ("driver", "java")
"""What is killed in a life, in an order of chance, with one of the last two by turns.

Few kills start a driver anew, as that takes most of the time.
"""

_SECOND_KILL_SHARE: Final = 0.2
"""Of the rounds; in these another kill comes while the job has not yet got over the first."""

_MOMENTS: Final = ("now", "planned", "sent", "hidden", "committed", "noted")
"""What a kill waits for; see `_Campaign._seen`."""

_MOMENT_LIMIT_S: Final = 10.0
"""Seconds that a kill waits for its moment. A micro-batch may pass one unseen; then it is any other moment."""

_PROGRESS_LIMIT_S: Final = 600.0
"""Seconds in which a job must have read all that was sent, whatever was killed."""

_DEATH_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.02
_LOOK_S: Final = 0.25
_KILLS, _CLEAN = "kills", "clean"


def kill_scaled_jobs(run: ProgrammeRun) -> None:
    """S21. 50 rounds (CI), 1,000 (full), 10,000 (soak).

    A round sends events, breaks one thing at a moment of chance in the micro-batch that they make, sends as many events
    again, and waits until the job has read them all. It kills the job's driver or its Java, an executor of Spark's
    cluster, a Python worker, the broker or the job server, each fifth round another one of them a moment later; or it
    pauses the job and resumes it with another number of tasks, on Spark's cluster and beside its driver by turns.
    Half-way the topic gets more queues. Behind each scaling and at the end all sinks have what plain Python makes of
    the messages; at the end so have those of a second job that nobody disturbs.
    """
    rounds = run.by_size(50, 1_000, 10_000)
    make_class_archive()
    began_s = time.monotonic()
    for first in range(0, rounds, _CAMPAIGN_ROUNDS):
        _run_campaign(run, min(_CAMPAIGN_ROUNDS, rounds - first))
        run.counts["seconds_a_round"] = round((time.monotonic() - began_s) / max(1, run.counts.get("rounds", 0)), 1)


def rounds_of_lives(chance: random.Random) -> Iterator[tuple[Life, str]]:
    """Without end, of each round the life that it is in and what it breaks; the last of each life is a scaling."""
    for number, life in enumerate(cycle(_LIVES)):
        kinds = [*_kills_of(life), _DRIVERS[number // 2 % 2]]
        chance.shuffle(kinds)
        for kind in (*kinds, SCALING):
            yield life, kind


def _kills_of(life: Life) -> tuple[str, ...]:
    return _ON_CLUSTER if life.is_on_cluster else _BESIDE_DRIVER


def _run_campaign(run: ProgrammeRun, rounds: int) -> None:
    with scratch_directory() as root:
        with ExitStack() as running:
            tables = database_tables([_KILLS, _CLEAN])
            databases = [sqlite(root, tables)]
            for start, skipped in ((postgresql, POSTGRESQL_SKIPPED), (mariadb, MARIADB_SKIPPED)):
                server = running.enter_context(start(tables))
                if server is None:
                    run.counts[skipped] = 1
                else:
                    databases.append(server)
            cluster = JobCluster(root, running)
            client = running.enter_context(BlockingClient(cluster.nameserver))
            campaign = _Campaign(run, root, cluster, client, databases)
            campaign.kill_and_compare(rounds)
        # Not while the files change that are to be kept.
        for number, failure in enumerate(campaign.failures):
            run.fail(failure, None if number else root)


class _Campaign:
    """One job and its topics, from the first round to the last comparison."""

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
        self._feed = EventFeed(client, run.random)

    def kill_and_compare(self, rounds: int) -> None:
        """All rounds, or those up to the first from which the job does not go on; then the comparison."""
        self._client.create_topic(TopicConfig(EVENTS, read_queues=_QUEUES[0], write_queues=_QUEUES[0]))
        self._client.create_topic(TopicConfig(NAMES, read_queues=2, write_queues=2))
        schedule = rounds_of_lives(self._run.random)
        life, kind = next(schedule)
        self._submit(_KILLS, self._settings(life))
        self._feed.send(_EVENTS_BEFORE)
        if not self._has_read_all("the start"):
            return
        for number in range(rounds):
            if number == rounds // 2:
                self._client.add_queues(EVENTS, _QUEUES[1])
                self._note(f"{EVENTS} has {_QUEUES[1]} queues")
            following = next(schedule)
            if not self._round(number, kind, life, following[0]):
                return
            if kind == SCALING and not self._compare(_KILLS, f"behind round {number}"):
                return
            life, kind = following
        if self._compare(_KILLS, "at the end"):
            self._ask(lambda: self._cluster.jobs.change(_KILLS, "pause"))
            self._submit(_CLEAN, {"parallelism.default": "2"})
            self._compare(_CLEAN, "at the end")

    # inside

    def _round(self, number: int, kind: str, life: Life, next_life: Life) -> bool:
        """Whether the job has read what was sent before and behind the break."""
        began_s = time.monotonic()
        moment = self._run.random.choice(_MOMENTS)
        before = self._seen(moment)
        self._feed.send(_EVENTS_BEFORE)
        is_met = self._wait_for(moment, before)
        if not is_met:
            self._run.count("missed_moments")
        time.sleep(self._run.random.choice((0.0, 0.0, 0.05, 0.3)))
        waited_s = time.monotonic() - began_s
        broken = [kind]
        if kind == SCALING:
            self._rescale(next_life)
        else:
            self._kill(kind)
            if self._run.random.random() < _SECOND_KILL_SHARE:
                time.sleep(self._run.random.choice((0.0, 0.3, 1.0, 3.0)))
                broken.append(self._run.random.choice((*_kills_of(life), *_DRIVERS)))
                self._kill(broken[1])
        self._feed.send(_EVENTS_BEFORE)
        if not self._has_read_all(f"round {number}, {' and '.join(broken)}"):
            return False
        found = self._ask(lambda: self._cluster.jobs.describe(_KILLS))
        words = f"{' and '.join(broken)} when {moment if is_met else 'anything'}, {life}"
        took_s = time.monotonic() - began_s
        self._note(f"round {number}: {words}: {waited_s:.1f} of {took_s:.1f} s before; {found['restarts']} restarts")
        self._run.count("rounds")
        return True

    def _kill(self, kind: str) -> None:
        match kind:
            case "broker" | "server":
                part = "jobs" if kind == "server" else kind
                self._cluster.kill(part)
                time.sleep(self._run.random.choice((0.0, 0.5, 3.0)))
                self._cluster.start(part)
            case "driver":
                self._kill_one(self._cluster.drivers)
            case "java":
                self._kill_one(self._cluster.java_of_drivers)
            case "executor":
                self._kill_one(self._cluster.executors)
            case _:
                self._kill_one(self._cluster.python_workers)
        self._run.count(f"{kind}_kills")

    def _kill_one(self, find: Callable[[], Sequence[int]]) -> None:
        """One of chance, which is dead when this returns; those that are just being started are waited for."""
        limit_s = time.monotonic() + _PROGRESS_LIMIT_S
        while time.monotonic() < limit_s:
            if found := sorted(find()):
                pid = self._run.random.choice(found)
                # One that ends by itself just now is no kill.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self._wait_for_death(pid, find)
                    return
            time.sleep(_POLL_S)
        self.failures.append(f"nothing to kill was started: {find.__name__}")

    def _wait_for_death(self, pid: int, find: Callable[[], Sequence[int]]) -> None:
        limit_s = time.monotonic() + _DEATH_LIMIT_S
        while pid in find():
            if time.monotonic() > limit_s:
                self.failures.append(f"the process {pid} of {find.__name__} lives on after kill -9")
                return
            time.sleep(_POLL_S)

    def _rescale(self, life: Life) -> None:
        settings = self._settings(life)
        self._ask(lambda: self._cluster.jobs.change(_KILLS, "pause"))
        self._ask(lambda: self._cluster.jobs.update(_KILLS, text=None, settings=settings, apply=True))
        self._ask(lambda: self._cluster.jobs.change(_KILLS, "resume"))
        self._run.count("scalings")

    def _settings(self, life: Life) -> dict[str, str]:
        tasks = {"parallelism.default": str(life.tasks)}
        return tasks | ({"spark.master": self._cluster.master} if life.is_on_cluster else {})

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

    def _wait_for(self, moment: str, before: frozenset[Hashable]) -> bool:
        """Whether the moment was seen in time."""
        limit_s = time.monotonic() + _MOMENT_LIMIT_S
        while moment != "now":
            # Files and directories go while they are looked for.
            with contextlib.suppress(FileNotFoundError):
                if not self._seen(moment) <= before:
                    return True
            if time.monotonic() > limit_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _has_read_all(self, what: str) -> bool:
        """Whether what needs no later events stands in all sinks in time; nothing may be there twice."""
        wanted = self._feed.expected()
        early = {name: wanted[name] for name in ("sums", "joined")}
        return self._comes_true(lambda: self._is_there(_KILLS, early, what), what, _KILLS)

    def _is_there(self, job: str, wanted: dict[str, Any], what: str) -> bool:
        """Whether the sinks have these rows; a row too much that is never taken back is a failure."""
        for sink, words, rows in differences(self._jobs[job].found(self._client), wanted):
            if words == "too much" and not sink.endswith("sums"):
                self.failures.append(f"{what}: {sink} has {rows.total()} rows too much, such as {next(iter(rows))}")
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
        return not self.failures

    def _compare(self, job: str, when: str) -> bool:
        """Whether all sinks have all rows, those of windows and matches included; closes the windows of the kills."""
        if job == _KILLS:
            self._feed.close_windows()
        wanted = self._feed.expected()
        what = f"the comparison of {job} {when}"
        if self._comes_true(lambda: self._is_there(job, wanted, what), what, job):
            self._run.count("comparisons")
            self._run.count("rows", sum(rows.total() for _, _, rows in self._jobs[job].found(self._client)))
            return True
        for sink, words, rows in differences(self._jobs[job].found(self._client), wanted):
            self.failures.append(f"{what}: {sink}: {rows.total()} rows {words}, such as {next(iter(rows))}")
        return False

    def _note(self, words: str) -> None:
        with self._rounds_log.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {words}\n")
