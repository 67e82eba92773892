"""Savepoints of a job that runs in a real driver: a second job begins from one, and what runs takes a changed query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_real_drivers import PATIENCE_S, Stage, jobs_of

from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPT = """
CREATE TABLE taken (n BIGINT) WITH ('connector' = 'rocketmq', 'topic' = 'taken', 'format' = 'json');
CREATE TABLE given (k BIGINT, c BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-rocketmq', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO given SELECT MOD(n, 2) AS k, {value} AS c FROM taken WHERE {condition} GROUP BY MOD(n, 2);
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ServerProcess(tmp_path / "data") as server, BlockingClient(server.addresses.nameserver) as client:
        for topic in ("taken", "given", "second"):
            client.create_topic(TopicConfig(topic))
        yield Stage(tmp_path, server.addresses.nameserver, client)


def script(topic: str = "given", value: str = "COUNT(*)", condition: str = "n >= 0") -> str:
    return SCRIPT.format(topic=topic, value=value, condition=condition)


def test_a_job_is_saved_while_it_runs_another_begins_from_there_and_a_changed_query_keeps_the_counts(
    stage: Stage, tmp_path: Path
) -> None:
    with stage.start("one") as server:
        jobs = jobs_of(server)
        # A server on a busy machine takes a while to lead.
        eventually_blocking(lambda: jobs.jobs() == [], not_yet=(MillstreamError,), patience_s=PATIENCE_S)
        jobs.submit(name="first", kind="sql", text=script())
        stage.send(20)
        eventually_blocking(lambda: b'{"k":0,"c":10}' in stage.given(), patience_s=PATIENCE_S)

        saved = tmp_path / "saved"
        told = jobs.savepoint("first", directory=str(saved), label="before")
        assert told["directory"] == str(saved)
        assert "Savepoint before of job first" in told["lines"][0]
        assert any("GROUP BY" in line for line in told["lines"])
        with pytest.raises(MillstreamError, match="is there already"):
            jobs.savepoint("first", directory=str(saved))

        settings = {"execution.state-recovery.path": str(saved)}
        in_the_way = script("second", "SUM(n)")
        with pytest.raises(MillstreamError, match="GROUP BY") as refused:
            jobs.submit(name="second", kind="sql", text=in_the_way, settings=settings)
        assert refused.value.name == "CHECKPOINT_MISMATCH"
        assert [job["name"] for job in jobs.jobs()] == ["first"]
        kept = jobs.submit(name="second", kind="sql", text=script("second", condition="n < 1000"), settings=settings)
        assert ["goes on" in one["words"] and "kept" in one["words"] for one in kept["recovery"]] == [True]

        changed = script(condition="n <> 21")
        found = jobs.update("first", text=changed, settings=None, apply=True)
        assert found["applied"]
        eventually_blocking(lambda: jobs.describe("second")["state"] == "running", patience_s=PATIENCE_S)
        stage.send(4)
        # The first one leaves 21 out; both count on from ten.
        eventually_blocking(lambda: b'{"k":0,"c":12}' in stage.given(), patience_s=PATIENCE_S)
        eventually_blocking(lambda: b'{"k":1,"c":11}' in stage.given(), patience_s=PATIENCE_S)
        assert b'{"k":1,"c":12}' not in stage.given()
        eventually_blocking(lambda: b'{"k":1,"c":12}' in stage.given("second"), patience_s=PATIENCE_S)
        assert b'{"k":1,"c":1}' not in stage.given("second")
        with pytest.raises(MillstreamError) as refused:
            jobs.update("first", text=script(value="SUM(n)"), settings=None, apply=True)
        assert refused.value.name == "CHECKPOINT_MISMATCH"
