"""Topics of a cluster with access control and TLS, named by the options of their tables alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from certificates import needs_openssl
from millstream.client.blocking import BlockingClient
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.security.signature import Credentials
from millstream.security.tls import client_context
from millstream.server.child import ServerProcess

pytestmark = [pytest.mark.spark, needs_openssl]

NAME, SECRET = "ops-key", "ops-secret-0123"


def bodies(client: BlockingClient, topic: str) -> list[bytes]:
    return [
        message.body
        for item in client.queue_ranges(topic)
        for batch in client.read(item.queue, 0, item.range.max_offset)
        for message in batch.messages()
    ]


def test_a_job_reads_writes_and_sets_aside_by_the_keys_and_certificates_of_its_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, "MILLSTREAM_TLS_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPS_SECRET", SECRET)
    root = {ACCESS_KEY_VARIABLE: NAME, SECRET_KEY_VARIABLE: SECRET}
    options = ["--secure", "--tls", "required"]
    certificate = str(tmp_path / "data" / "tls" / "certificate.pem")
    with ServerProcess(tmp_path / "data", options=options, environment=root) as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(
            nameserver, credentials=Credentials(NAME, SECRET), tls=client_context(certificate)
        ) as client:
            for topic in ("t", "o"):
                client.create_topic(TopicConfig(topic, read_queues=1, write_queues=1))
            client.send_many([Message("t", json.dumps({"id": number}).encode()) for number in range(3)])
            client.send_many([Message("t", b"torn")])
            access = f"'access-key' = '{NAME}', 'secret-key' = '${{env:OPS_SECRET}}', 'tls' = '{certificate}'"
            script = (
                f"CREATE TABLE t (id INT) WITH ('connector' = 'rocketmq', 'topic' = 't', {access});"
                f"CREATE TABLE o (id INT) WITH ('connector' = 'rocketmq', 'topic' = 'o', {access});"
                "INSERT INTO o SELECT id + 1 FROM t"
            )
            result = bounded_run(spark, Topic(nameserver, tmp_path), script, name="secured")
            assert sorted(bodies(client, "o")) == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
            assert bodies(client, "t_dead_letter") == [b"torn"]
    assert result.progress.malformed == 1
    kept = [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert kept
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)
