"""A stream job's source reads from replicas while the process of the master is stopped and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.client.blocking import BlockingClient
from millstream.client.cluster_operations import ClusterOperations
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess
from millstream.streams.connectors.rocketmq.reader import TopicSpec, TopicStreamReader, read_partition
from millstream.streams.plan.types import BIGINT, STRING
from millstream.streams.spark.source.formats.body_format import BodyFormat
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn
from millstream.telemetry.processes import owner_of
from patience import eventually_blocking

pytestmark = [pytest.mark.process, pytest.mark.kill]

REPLICAS = 3
MESSAGES = 300
QUEUE = "broker-a/0"
_OPTIONS = (
    "--brokers", "1", "--replicas", str(REPLICAS), "--nameserver-port", "0", "--controller-port", "0",
    "--broker-port", "0", "--grpc-port", "0",
)  # fmt: skip


@pytest.fixture
def nameserver(tmp_path: Path) -> Iterator[str]:
    """A set of three processes, with a topic of 300 messages that all of them have."""
    with RoleProcess("cluster", tmp_path / "c", options=_OPTIONS, log=tmp_path / "log") as cluster:
        address = cluster.addresses["nameserver"]
        with BlockingClient(address, timeout_s=10) as client:
            eventually_blocking(lambda: len(_places(client)) == REPLICAS)
            client.create_topic(TopicConfig("orders", read_queues=1, write_queues=1))
            client.send_many([Message("orders", b"%d" % number) for number in range(MESSAGES)])
        yield address


def _places(client: BlockingClient) -> dict[int, str]:
    return {
        place.broker_id: place.address for place in client.run(ClusterOperations(client.conversations).list_brokers())
    }


def _process_of(address: str) -> int:
    host, _, port = address.rpartition(":")
    found = owner_of(host, int(port))
    assert found is not None
    return found


class Job:
    """Micro-batches of 50 rows, one after the other."""

    def __init__(self, nameserver: str) -> None:
        columns = (SourceColumn("text", STRING), SourceColumn("at", BIGINT, "queue-offset"))
        self._spec = TopicSpec(
            nameserver=nameserver, topic="orders", columns=columns, start=Position({QUEUE: 0}, name="orders"),
            max_rows=50, body=BodyFormat("raw"), timeout_s=5.0, read_from="replica",
        )  # fmt: skip
        self._reader = TopicStreamReader(self._spec)
        self._position: dict[str, Any] = self._reader.initialOffset()
        self.rows: list[tuple[int, str]] = []

    def step(self) -> None:
        end = self._reader.latestOffset(self._position, self._reader.getDefaultReadLimit())
        for partition in self._reader.partitions(self._position, end):
            for batch in read_partition(self._spec, partition):
                self.rows += [(row["at"], row["text"]) for row in batch.to_pylist()]
        self._position = end

    def has(self, count: int) -> bool:
        self.step()
        return len(self.rows) >= count

    def stop(self) -> None:
        self._reader.stop()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_a_source_goes_on_while_the_masters_process_is_gone_and_at_the_next_one(
    nameserver: str, how: signal.Signals
) -> None:
    job = Job(nameserver)
    job.step()
    assert job.rows
    with BlockingClient(nameserver, timeout_s=10) as client:
        former = _places(client)[0]
        process = _process_of(former)
        os.kill(process, how)
        try:
            # Nobody waits for the election.
            eventually_blocking(lambda: job.has(MESSAGES))
            eventually_blocking(lambda: _places(client).get(0, former) != former)
            client.send_many([Message("orders", b"%d" % number) for number in range(MESSAGES, MESSAGES + 20)])
            eventually_blocking(lambda: job.has(MESSAGES + 20))
        finally:
            if how is signal.SIGSTOP:
                os.kill(process, signal.SIGCONT)
    job.stop()
    assert job.rows == [(number, str(number)) for number in range(MESSAGES + 20)]
