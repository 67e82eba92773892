"""What a job that runs in a real driver tells of its queues and of a broker that is away."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_real_drivers import SCRIPT, Stage, jobs_of

from millstream.client.blocking import BlockingClient
from millstream.client.job_server import JobServerClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(1800)]

PATIENCE_S = 600.0
SHORTLY_S, LONG_S = 5.0, 60.0
"""Seconds for which the broker is away: the server keeps its lease of the jobs, or loses it."""


AWAY = (MillstreamError,)
"""What the job server answers until it leads again."""


class Cluster:
    """A nameserver, and a broker that comes back on its port and its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        names = directory / "names"
        self._names = RoleProcess("nameserver", names, options=("--port", "0", "--metrics-port", "-1"))
        self.nameserver = next(iter(self._names.addresses.values()))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.broker = self.start_broker()

    def start_broker(self) -> RoleProcess:
        options = ("--port", str(self._port), "--nameservers", self.nameserver, "--metrics-port", "-1")
        self.broker = RoleProcess("broker", self._directory / "broker", options=options)
        return self.broker

    def close(self) -> None:
        for one in (self.broker, self._names):
            one.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    try:
        yield found
    finally:
        found.close()


def kinds(jobs: JobServerClient) -> list[str]:
    return [one["kind"] for one in jobs.describe("job")["events"]]


def test_queues_that_come_to_the_topic_are_read_and_a_broker_that_is_away_stops_no_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    with BlockingClient(cluster.nameserver) as client:
        for topic in ("taken", "given"):
            client.create_topic(TopicConfig(topic, read_queues=4, write_queues=4))
        stage = Stage(tmp_path, cluster.nameserver, client)
        with stage.start("one") as server:
            jobs = jobs_of(server)
            eventually_blocking(lambda: jobs.jobs() == [], not_yet=AWAY, patience_s=PATIENCE_S)
            jobs.submit(name="job", kind="sql", text=SCRIPT.format(condition="n >= 0"))
            stage.send(20)
            eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
            assert "queue_added" not in kinds(jobs)

            client.add_queues("taken", 8)
            with BlockingClient(cluster.nameserver) as fresh:
                eight = fresh.queues("taken")
                assert len(eight) == 8
                for queue in eight:
                    fresh.send_many([Message("taken", b'{"n": %d}' % stage.sent)], queue=queue)
                    stage.sent += 1
            eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
            eventually_blocking(lambda: "queue_added" in kinds(jobs), patience_s=PATIENCE_S)
            found = jobs.describe("job")
            assert len(found["progress"]["queues"]) == 8
            (added,) = [one for one in found["events"] if one["kind"] == "queue_added"]
            assert "4 queues" in added["words"]

            for away_s, told in ((SHORTLY_S, "server_back"), (LONG_S, "restarted")):
                cluster.broker.kill()
                time.sleep(away_s)
                cluster.start_broker()
                stage.send(20)
                eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
                eventually_blocking(lambda wanted=told: wanted in kinds(jobs), not_yet=AWAY, patience_s=PATIENCE_S)
            assert "server_away" in kinds(jobs)
            assert jobs.describe("job")["state"] == "running"
