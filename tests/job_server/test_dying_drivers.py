"""A job that takes its driver with it: it is found and isolated, and the jobs that shared the driver go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_real_drivers import SCRIPT, Stage, leading_jobs_of

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(2400)]

PATIENCE_S = 1_200.0
OTHERS = 3
AWAY = (MillstreamError,)

PROGRAM = """
import os, signal
from pathlib import Path
from millstream.streams.sdk import StreamBuilder


def kill_driver(row):
    pid = os.getpid()
    while b"millstream.job_server.driver" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    return {"text": ""}


def main():
    builder = StreamBuilder("bad")
    made = builder.source("taken", schema={"n": int}).map(kill_driver, schema={"text": str})
    made.select(text="CONCAT(text, '.')").print("bad")
    return builder
"""

HUNGRY = """
from millstream.streams.sdk import StreamBuilder


def main():
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    # None where the server looks at the program before it accepts it.
    held = None if context is None else context._jvm.java.util.ArrayList()
    while held is not None:
        held.add(context._gateway.new_array(context._jvm.long, 4_000_000))
    builder = StreamBuilder("hungry")
    builder.source("taken", schema={"n": int}).select(n="n").print("hungry")
    return builder
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ServerProcess(tmp_path / "data") as server, BlockingClient(server.addresses.nameserver) as client:
        for topic in ("taken", "given"):
            client.create_topic(TopicConfig(topic))
        yield Stage(tmp_path, server.addresses.nameserver, client)


def test_the_job_that_ends_the_shared_driver_is_isolated_and_the_others_write_each_row_once(
    stage: Stage,
) -> None:
    with stage.start("one") as server:
        jobs = leading_jobs_of(server)
        names = [f"good-{number}" for number in range(OTHERS)]
        for number, name in enumerate(names):
            jobs.submit(name=name, kind="sql", text=SCRIPT.format(condition=f"MOD(n, {OTHERS}) = {number}"))
        jobs.submit(name="bad", kind="program", text=PROGRAM)
        stage.send(30)

        def is_isolated() -> bool:
            return bool([one for one in jobs.describe("bad")["events"] if one["kind"] == "isolated"])

        eventually_blocking(is_isolated, not_yet=AWAY, patience_s=PATIENCE_S)
        stage.send(30)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)

        found = {name: jobs.describe(name) for name in names}
        assert {one["state"] for one in found.values()} == {"running"}
        assert not [name for name, one in found.items() if "isolated" in [event["kind"] for event in one["events"]]]
        ends = jobs.describe("bad")["failures"]
        assert {one["code"] for one in ends} == {"JOB_DRIVER_ENDED"}
        assert "the signal 9" in str(ends)

        # The isolated job has died again, or will; the driver that the others share does not any more.
        before = {name: one["restarts"] for name, one in found.items()}
        died = jobs.describe("bad")["restarts"]
        eventually_blocking(lambda: jobs.describe("bad")["restarts"] > died, not_yet=AWAY, patience_s=PATIENCE_S)
        stage.send(30)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        assert {name: jobs.describe(name)["restarts"] for name in names} == before


def test_a_job_that_fills_the_heap_of_its_driver_is_named_and_other_jobs_go_on(stage: Stage) -> None:
    with stage.start("one") as server:
        jobs = leading_jobs_of(server)
        jobs.submit(name="good", kind="sql", text=SCRIPT.format(condition="n >= 0"))
        stage.send(10)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        jobs.submit(name="hungry", kind="program", text=HUNGRY, memory_mb=512)
        eventually_blocking(lambda: jobs.describe("hungry")["restarts"] > 0, not_yet=AWAY, patience_s=PATIENCE_S)
        found = jobs.describe("hungry")["failures"][-1]
        assert found["code"] == "JOB_DRIVER_ENDED"
        assert "the heap of 512 MiB of its Java process was full" in str(found)
        stage.send(10)
        eventually_blocking(stage.all_given_once, patience_s=PATIENCE_S)
        assert jobs.describe("good")["restarts"] == 0
