"""RocketMQ's admin tool (5.3.3), unmodified, at a broker of ours with replicas: epochs and what replicas have."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.admin_tool import AdminTool, rows
from interop.driver import Driver, Missing
from millstream.client.blocking import BlockingClient, BlockingConnection
from millstream.model.group import GroupConfig
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess

NAME = "broker-a"

_JOIN_S = 30.0
"""How long the second replica may take until it is in the set."""


class ReplicaProcesses:
    """A nameserver with a controller, and two replicas of one broker; the first one is the master."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        options = ["--port", "0", "--set", "controller.enabled=true", "--set", "controller.port=0"]
        self.nameserver = running.enter_context(
            RoleProcess("nameserver", directory / "n", options=options, log=directory / "n.log")
        )
        where, controller = (self.nameserver.addresses[name] for name in ("nameserver", "controller"))
        settings = [f'nameservers=["{where}"]', f'controllers=["{controller}"]', f"name={NAME}", "port=0"]
        # Whoever is behind reads from the replica.
        settings += ["metrics_port=0", "replicas.old_percent=0"]
        words = [word for setting in settings for word in ("--set", setting)]
        self.brokers = [
            running.enter_context(RoleProcess("broker", directory / name, options=words, log=directory / f"{name}.log"))
            for name in ("a", "b")
        ]
        self._controller = BlockingConnection(controller, timeout_s=10)
        running.callback(self._controller.close)
        deadline_s = time.monotonic() + _JOIN_S
        while self.members() != 2:
            assert time.monotonic() < deadline_s, "The second replica is not in the set."
            time.sleep(0.05)

    def reads(self) -> int:
        """How many requests of readers the second one has answered as a replica."""
        with urllib.request.urlopen(f"http://{self.brokers[1].addresses['metrics']}/metrics", timeout=10) as page:
            found = re.search(r"^millstream_replica_reads_total(?:{.*})? (\d+)", page.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def members(self) -> int:
        """How many replicas are in the set."""
        answer = self._controller.request(RemotingCommand(1006, {}, json.dumps([NAME]).encode()), 10)
        return len(json.loads(answer.body)["replicasInfoTable"][NAME]["inSyncReplicas"])


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcesses]:
    with ExitStack() as running:
        yield ReplicaProcesses(tmp_path_factory.mktemp("replicas"), running)


@pytest.fixture(scope="module")
def tool(replicas: ReplicaProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminTool]:
    try:
        started = AdminTool(replicas.nameserver.addresses["nameserver"], tmp_path_factory.mktemp("mqadmin") / "home")
    except Missing as missing:
        pytest.skip(f"mqadmin cannot run here: {missing}")
    with started:
        yield started


def test_it_prints_the_epochs_of_a_master(tool: AdminTool) -> None:
    printed = tool.done("getBrokerEpoch", b=NAME)
    assert re.search(r"^#brokerId\s+0$", printed, re.MULTILINE), printed
    assert "#Epoch: EpochEntry{epoch=1, startOffset=0, " in printed, printed


def test_it_prints_what_each_replica_of_a_master_has(tool: AdminTool, replicas: ReplicaProcesses) -> None:
    printed = tool.done("haStatus", b=replicas.brokers[0].addresses["broker"])
    assert re.search(r"^#InSyncSlaveNum\s+1$", printed, re.MULTILINE), printed
    [row] = rows(printed)
    assert (row[2], row[4]) == ("0", "OK")


def test_it_prints_a_replica_that_is_asked_itself(tool: AdminTool, replicas: ReplicaProcesses) -> None:
    printed = tool.done("haStatus", b=replicas.brokers[1].addresses["broker"])
    assert replicas.brokers[0].addresses["broker"] in printed, printed


def test_its_list_of_clusters_has_the_master_and_the_replica(tool: AdminTool, replicas: ReplicaProcesses) -> None:
    deadline_s = time.monotonic() + _JOIN_S
    while len(found := rows(printed := tool.done("clusterList"))) < 2:
        assert time.monotonic() < deadline_s, printed
        time.sleep(0.1)
    # Cluster, name, id, address, version.
    told = [(row[1], row[2], row[3], row[4].split("_")[0]) for row in found]
    places = [broker.addresses["broker"] for broker in replicas.brokers]
    assert told == [(NAME, "0", places[0], "MILLSTREAM"), (NAME, "2", places[1], "MILLSTREAM")], printed


def test_it_reads_a_message_from_the_replica_by_its_id(tool: AdminTool, replicas: ReplicaProcesses) -> None:
    """A message's id names the broker that stored it first; the replica has it at the same place of its log."""
    with BlockingClient(replicas.nameserver.addresses["nameserver"]) as client:
        client.create_topic(TopicConfig("read", read_queues=1, write_queues=1))
        sent = client.send(Message("read", b"seen"))
    port = int(replicas.brokers[1].addresses["broker"].rpartition(":")[2])
    at_replica = f"{sent.offset_message_id[:8]}{port:08X}{sent.offset_message_id[16:]}"
    # The replica hears a little after the sender that every member has it.
    deadline_s = time.monotonic() + _JOIN_S
    while "no message" in (printed := tool("queryMsgById", t="read", i=at_replica)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert re.search(r"^Topic:\s+read$", printed, re.MULTILINE), printed


def test_a_java_consumer_that_is_behind_reads_from_the_replica(java: Driver, replicas: ReplicaProcesses) -> None:
    topic, nameserver = f"behind-{java.name.replace('.', '-')}", replicas.nameserver.addresses["nameserver"]
    bodies = [f"{number}" for number in range(500)]
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(topic, read_queues=1, write_queues=1))
        client.create_group(GroupConfig(f"{topic}-group"))
        client.send_many([Message(topic, body.encode()) for body in bodies])
    before = replicas.reads()
    java.order("open_push", topic, endpoint=nameserver, group=f"{topic}-group", topic=topic)
    told = java.wait_for(topic, len(bodies))
    assert sorted(message["body"] for message in told) == sorted(bodies)
    assert replicas.reads() > before
    java.order("close", topic)
    # What it has consumed is known to the master, which alone keeps offsets.
    with BlockingClient(nameserver) as client:
        [queue] = client.queues(topic)
        assert client.query_offset(f"{topic}-group", queue) == len(bodies)


def test_it_prints_the_set_that_the_controllers_have(tool: AdminTool, replicas: ReplicaProcesses) -> None:
    printed = tool.done("getSyncStateSet", a=replicas.nameserver.addresses["controller"], b=NAME)
    assert printed.count("alive=true") == 2, printed
