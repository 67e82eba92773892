"""Job servers and drivers as real processes, killed: jobs go on from their checkpoints, each row is written once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.client.job_server import JobServerClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.server.child import RoleProcess, ServerProcess
from millstream.telemetry.processes import ProcessTree
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
SCRIPT = """
CREATE TABLE taken (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'taken', 'format' = 'json');
CREATE TABLE given (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'given', 'format' = 'json');
INSERT INTO given SELECT n FROM taken WHERE {condition};
"""


class Stage:
    """A broker with two topics, and job servers that share their checkpoints."""

    def __init__(self, directory: Path, nameserver: str, client: BlockingClient) -> None:
        self._directory = directory
        self._nameserver = nameserver
        self._client = client
        self.sent = 0

    def start(self, name: str) -> RoleProcess:
        options = ("--port", "0", "--nameservers", self._nameserver, "--metrics-port", "0")
        shared = ("--checkpoint-root", str(self._directory / "checkpoints"))
        log = self._directory / f"{name}.log"
        return RoleProcess("jobs", self._directory / name, options=(*options, *shared), log=log)

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self._client.send_many([Message("taken", b'{"n": %d}' % number) for number in numbers])
        self.sent += count

    def given(self, topic: str = "given") -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for item in self._client.queue_ranges(topic):
            for batch in self._client.read(item.queue, item.range.min_offset, item.range.max_offset):
                found.update(decode_record(record).body for record in batch.records())
        return found

    def all_given_once(self) -> bool:
        found = self.given()
        assert max(found.values(), default=1) == 1, "a row was written twice"
        return len(found) == self.sent


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ServerProcess(tmp_path / "data") as server, BlockingClient(server.addresses.nameserver) as client:
        for topic in ("taken", "given"):
            client.create_topic(TopicConfig(topic))
        yield Stage(tmp_path, server.addresses.nameserver, client)


def jobs_of(server: RoleProcess) -> JobServerClient:
    return JobServerClient(f"http://{server.addresses['http']}")


def leading_jobs_of(server: RoleProcess) -> JobServerClient:
    """The same once the server leads, which it may not yet when it is ready."""
    jobs = jobs_of(server)
    eventually_blocking(lambda: jobs.jobs() == [], not_yet=(MillstreamError,), patience_s=PATIENCE_S)
    return jobs


def drivers_of(server: RoleProcess) -> list[int]:
    """The processes right below the server."""
    tree = ProcessTree([server.pid]).cpu_s() or {}
    found = []
    for pid, _ in tree:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"millstream.job_server.driver" in words:
            found.append(pid)
    return found


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_goes_on_after_its_driver_its_server_and_the_first_of_two_servers_are_killed(stage: Stage) -> None:
    with stage.start("one") as first:
        submit = leading_jobs_of(first).submit
        submit(name="job", kind="sql", text=SCRIPT.format(condition="n >= 0"))
        with pytest.raises(MillstreamError):
            submit(name="bad", kind="sql", text="INSERT INTO nowhere SELECT 1")
        stage.send(20)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        (driver,) = drivers_of(first)
        os.kill(driver, signal.SIGKILL)
        stage.send(20)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        found = jobs_of(first).describe("job")
        assert found["restarts"] == 1
        assert found["failures"][-1]["code"] == "JOB_DRIVER_ENDED"

        jobs_of(first).change("job", "pause")
        eventually_blocking(lambda: jobs_of(first).describe("job")["state"] == "paused", patience_s=PATIENCE_S)
        stage.send(20)
        jobs_of(first).change("job", "resume")
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)

        (driver,) = drivers_of(first)
        first.kill()
    eventually_blocking(lambda: not is_there(driver), patience_s=PATIENCE_S)
    stage.send(20)
    with stage.start("one") as again, stage.start("two") as second:
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        (driver,) = drivers_of(again)
        assert not drivers_of(second)
        again.kill()
        eventually_blocking(lambda: not is_there(driver), patience_s=PATIENCE_S)
        stage.send(20)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        assert drivers_of(second)


def test_small_jobs_share_one_query_and_one_that_is_cancelled_ends_alone(stage: Stage) -> None:
    with stage.start("one") as server:
        jobs = leading_jobs_of(server)
        for number in range(20):
            jobs.submit(name=f"job-{number}", kind="sql", text=SCRIPT.format(condition=f"MOD(n, 20) = {number}"))

        def states() -> set[str]:
            return {job["state"] for job in jobs.jobs()}

        eventually_blocking(lambda: states() == {"running"}, patience_s=PATIENCE_S)
        assert len({tuple(job["queries"]) for job in jobs.jobs()}) == 1
        assert len(drivers_of(server)) == 1
        stage.send(100)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        jobs.change("job-7", "cancel")
        eventually_blocking(lambda: states() == {"running", "cancelled"}, patience_s=PATIENCE_S)
        stage.send(100)
        eventually_blocking(lambda: len(stage.given()) == 195, patience_s=PATIENCE_S)
        assert max(stage.given().values()) == 1
