"""Jobs over a topic whose first messages lie in an object store alone: on Spark, past the broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import LIMIT_S, Collected, Topic, bounded_run, compiled

from cold_topics import ColdServers, cold_servers
from millstream.model.message import OutgoingMessage
from millstream.model.topic import TopicConfig
from millstream.streams.jobs.runner import JobRunner
from millstream.tiered.places import ObjectPlace
from object_stores import KEYS
from patience import eventually_blocking
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, find_versitygw, run_versitygw

pytestmark = pytest.mark.spark

COUNT = 600
CONFIG = TopicConfig("t", read_queues=2, write_queues=2)
EXPECTED = sorted((number, number // 2, number % 2) for number in range(COUNT))


def messages() -> Sequence[OutgoingMessage]:
    return [
        OutgoingMessage("t", json.dumps({"id": number, "text": "x" * 80}).encode(), {}, queue_id=number % 2)
        for number in range(COUNT)
    ]


def script(*options: str, mode: str = "streaming") -> str:
    given = "".join(f", {option}" for option in options)
    return (
        f"SET 'execution.runtime-mode' = '{mode}';"
        "CREATE TABLE t (id INT, at BIGINT METADATA FROM 'queue-offset' VIRTUAL, queue INT METADATA FROM 'queue-id' VIRTUAL)"
        f" WITH ('connector' = 'rocketmq', 'topic' = 't'{given});"
        "CREATE TABLE o (id INT, at BIGINT, queue INT) WITH ('connector' = 'print');"
        "INSERT INTO o SELECT id, at, queue FROM t"
    )


def topic_of(cold: ColdServers, directory: Path) -> Topic:
    assert min(cold.disk_offsets) > 50
    return Topic(cold.servers.nameserver, directory)


def test_bounded_jobs_and_batches_read_cold_messages_past_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    with cold_servers(tmp_path, messages(), CONFIG) as cold:
        topic = topic_of(cold, tmp_path)
        for number, mode in enumerate(("streaming", "batch")):
            collected = bounded_run(spark, topic, script(mode=mode), name=f"cold-{number}")
            assert sorted(collected.rows["o"]) == EXPECTED
            assert (collected.progress.cold_by_broker, collected.progress.notices) == ({}, ())
        assert cold.blocks_read == 0
        by_broker = bounded_run(spark, topic, script("'scan.cold' = 'broker'"), name="by-broker")
        assert sorted(by_broker.rows["o"]) == EXPECTED
        assert cold.blocks_read > 0
        assert by_broker.progress.cold_by_broker == {}


def test_a_stream_from_the_earliest_offset_goes_from_the_store_over_to_the_disk(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cold_servers(tmp_path, messages(), CONFIG) as cold:
        topic, collected = topic_of(cold, tmp_path), Collected()
        runner = JobRunner(spark, nameserver=topic.nameserver, checkpoint_root=tmp_path / "checkpoints")
        plan = compiled(script("'scan.max-rows-per-trigger' = '200'"), topic.nameserver)
        job = runner.start(plan, name="stream", on_rows=collected.take)
        try:
            eventually_blocking(lambda: len(collected.rows.get("o", ())) >= COUNT, patience_s=LIMIT_S)
        finally:
            job.stop()
        assert job.progress().cold_by_broker == {}
        assert cold.blocks_read == 0
        assert sorted(collected.rows["o"]) == EXPECTED


def test_workers_that_do_not_see_the_store_read_through_the_broker_and_the_progress_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cold_servers(tmp_path, messages(), CONFIG, seen_at=ObjectPlace(f"file://{tmp_path}/elsewhere")) as cold:
        collected = bounded_run(spark, topic_of(cold, tmp_path), script(), name="no-access")
        assert sorted(collected.rows["o"]) == EXPECTED
        assert collected.progress.cold_by_broker == {"t": sum(cold.disk_offsets)}
        [notice] = collected.progress.notices
        assert "Cold messages of t are read through the broker" in notice
        assert "no directory" in notice


@pytest.mark.process
@pytest.mark.parametrize("has_keys", [True, False])
def test_workers_read_a_bucket_with_the_keys_of_their_environment_and_else_through_the_broker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_keys: bool
) -> None:
    pytest.importorskip("obstore", reason="the package obstore (extra tiered) is not installed")
    program = find_versitygw()
    if program is None:
        pytest.skip("there is no versitygw: go install github.com/versity/versitygw/cmd/versitygw@latest")
    # The session's workers have KEYS; the broker has whatever the server wants.
    keys = (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]) if has_keys else (ACCESS_KEY, SECRET_KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[1])
    with run_versitygw(program, tmp_path / "s3", *keys) as endpoint:
        place = ObjectPlace(f"s3://{BUCKET}/cold", endpoint, "us-east-1")
        with cold_servers(tmp_path, messages(), CONFIG, place=place) as cold:
            collected = bounded_run(spark, topic_of(cold, tmp_path), script(), name=f"bucket-{has_keys}")
            assert sorted(collected.rows["o"]) == EXPECTED
            assert collected.progress.cold_by_broker == ({} if has_keys else {"t": sum(cold.disk_offsets)})
            assert (cold.blocks_read == 0) is has_keys
