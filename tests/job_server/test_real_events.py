"""What a job that runs in a real driver tells of its queues and of a broker that is away."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_real_drivers import SCRIPT, Stage, leading_jobs_of

from millstream.client.blocking import BlockingClient
from millstream.client.job_server import JobServerClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(1800)]

PATIENCE_S = 600.0
LOOK_S = 0.5
"""Between two looks: each reads the whole topic, and the job needs the processor more."""

AWAY_S = 60.0
"""Seconds for which the broker is away so that the server loses its lease of the jobs."""

AWAY = (MillstreamError,)
"""What servers answer while they are away, and the job server until it leads again."""


def soon(condition: Callable[[], object]) -> None:
    eventually_blocking(condition, poll_s=LOOK_S, not_yet=AWAY, patience_s=PATIENCE_S)


class Cluster:
    """A nameserver, and a broker that comes back on its port and its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        names = directory / "names"
        self._names = RoleProcess("nameserver", names, options=("--port", "0", "--metrics-port", "-1"))
        self.nameserver = next(iter(self._names.addresses.values()))
        self._kept = _bound_port(0)
        self._port = int(self._kept.getsockname()[1])
        self.start_broker()

    def start_broker(self) -> None:
        options = ("--port", str(self._port), "--nameservers", self.nameserver, "--metrics-port", "-1")
        self._kept.close()
        self.broker = RoleProcess("broker", self._directory / "broker", options=options)

    def kill_broker(self) -> None:
        """It is away; nobody else gets its port meanwhile, as connections of other programs take any that is free."""
        self.broker.kill()
        self._kept = _bound_port(self._port)

    def close(self) -> None:
        self._kept.close()
        for one in (self.broker, self._names):
            one.kill()


def _bound_port(port: int) -> socket.socket:
    """A socket with the port, on which nobody is answered."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", port))
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    try:
        yield found
    finally:
        found.close()


class Told:
    """What the server tells of the job, once it leads."""

    def __init__(self, jobs: JobServerClient) -> None:
        self._jobs = jobs

    def events(self, kind: str) -> list[str]:
        """The words of all events of a kind."""
        found: list[dict[str, Any]] = self._jobs.describe("job")["events"]
        return [one["words"] for one in found if one["kind"] == kind]

    def queues(self) -> int:
        return len(self._jobs.describe("job")["progress"]["queues"])

    def is_running(self) -> bool:
        return bool(self._jobs.describe("job")["state"] == "running")


def send(stage: Stage, client: BlockingClient) -> None:
    """Rows that are sent once: what a lost answer was about may have come, so the broker is there first."""
    soon(lambda: client.queue_ranges("taken"))
    stage.send(20)


def test_queues_that_come_to_the_topic_are_read_and_a_broker_that_is_away_stops_no_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    with BlockingClient(cluster.nameserver) as client:
        for topic in ("taken", "given"):
            client.create_topic(TopicConfig(topic, read_queues=4, write_queues=4))
        stage = Stage(tmp_path, cluster.nameserver, client)
        with stage.start("one") as server:
            jobs = leading_jobs_of(server)
            jobs.submit(name="job", kind="sql", text=SCRIPT.format(condition="n >= 0"))
            told = Told(jobs)
            stage.send(20)
            soon(stage.all_given_once)
            soon(lambda: told.queues() == 4 and not told.events("queue_added"))

            client.add_queues("taken", 8)
            with BlockingClient(cluster.nameserver) as fresh:
                soon(lambda: len(fresh.queues("taken")) == 8)
                for queue in fresh.queues("taken"):
                    fresh.send_many([Message("taken", b'{"n": %d}' % stage.sent)], queue=queue)
                    stage.sent += 1
            soon(stage.all_given_once)
            soon(lambda: "4 queues" in " ".join(told.events("queue_added")))
            soon(lambda: told.queues() == 8)

            # Shortly: back once the job has told of it. A slow machine may take so long that the lease is lost.
            cluster.kill_broker()
            soon(lambda: told.events("server_away"))
            cluster.start_broker()
            send(stage, client)
            soon(stage.all_given_once)
            soon(lambda: told.events("server_back") or told.events("restarted"))

            restarts = len(told.events("restarted"))
            cluster.kill_broker()
            time.sleep(AWAY_S)
            cluster.start_broker()
            send(stage, client)
            soon(stage.all_given_once)
            soon(lambda: len(told.events("restarted")) > restarts)
            soon(told.is_running)
            assert told.events("server_away")
