"""A job over a topic that it reads from replicas: on Spark, while the master's process is stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from millstream.telemetry.processes import owner_of
from patience import eventually_blocking

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.kill]

_OPTIONS = (
    "--brokers", "1", "--replicas", "3", "--nameserver-port", "0", "--controller-port", "0", "--broker-port", "0",
    "--grpc-port", "0",
)  # fmt: skip
_SCRIPT = (
    "CREATE TABLE t (id INT) WITH ('connector' = 'rocketmq', 'topic' = 't', 'scan.read-from' = 'replica');"
    "CREATE TABLE o (id INT) WITH ('connector' = 'print');"
    "INSERT INTO o SELECT id FROM t"
)


def test_a_job_reads_a_topic_whose_master_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    with RoleProcess("cluster", tmp_path / "c", options=_OPTIONS, log=tmp_path / "log") as cluster:
        nameserver = cluster.addresses["nameserver"]
        with BlockingClient(nameserver, timeout_s=10) as client:
            places = ClusterOperations(client.conversations)
            eventually_blocking(lambda: len(client.run(places.list_brokers())) == 3)
            client.create_topic(TopicConfig("t", read_queues=3, write_queues=3))
            client.send_many([Message("t", json.dumps({"id": number}).encode()) for number in range(1000)])
            master = min(client.run(places.list_brokers()), key=lambda place: place.broker_id)
        assert master.broker_id == 0
        host, _, port = master.address.rpartition(":")
        process = owner_of(host, int(port))
        assert process is not None
        os.kill(process, signal.SIGSTOP)
        try:
            collected = bounded_run(spark, Topic(nameserver, tmp_path), _SCRIPT, name="at-replicas")
        finally:
            os.kill(process, signal.SIGCONT)
    assert sorted(collected.rows["o"]) == [(number,) for number in range(1000)]
