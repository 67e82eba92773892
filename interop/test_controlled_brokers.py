"""Two brokers of RocketMQ 5.3.3 in controller mode, unmodified, at a controller and a nameserver of ours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interop.driver import Missing
from interop.reference.replicas import ReferenceReplica
from millstream.client.blocking import BlockingClient, BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess

pytestmark = pytest.mark.timeout(300)

NAME = "broker-a"
PATIENCE_S = 90.0
"""How long Java's timers of 5 and 10 s may take until a replica has found its place."""


class Sets:
    """What the controller says about the broker."""

    def __init__(self, controller: str) -> None:
        self._connection = BlockingConnection(controller, timeout_s=10)

    def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
        return self._connection.request(RemotingCommand(code, ext, body), 10)

    def info(self) -> dict[str, Any]:
        answer = self.ask(1006, json.dumps([NAME]).encode())
        found: dict[str, Any] = json.loads(answer.body)["replicasInfoTable"].get(NAME, {})
        return found

    def until(self, members: list[int], master: int | None = None) -> dict[str, Any]:
        """The set once it has these members and, where one is named, this master."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            info = self.info()
            found = [row["brokerId"] for row in info.get("inSyncReplicas", ())]
            if found == members and master in (None, info["masterBrokerId"]):
                return info
            assert time.monotonic() < give_up_s, info
            time.sleep(0.05)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def until(condition: Callable[[], bool]) -> None:
    """Return once it holds."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, condition
        time.sleep(0.05)


def ask_broker(address: str, code: int, **ext: str) -> int:
    """The code that a broker answers."""
    connection = BlockingConnection(address, timeout_s=10)
    try:
        return connection.request(RemotingCommand(code, ext), 10).code
    finally:
        connection.close()


def master_of(nameserver: str) -> str | None:
    """The address of the master that the nameserver names."""
    connection = BlockingConnection(nameserver, timeout_s=10)
    try:
        asked = RemotingCommand(901, {"clusterName": "DefaultCluster", "brokerName": NAME})
        members = json.loads(connection.request(asked, 10).body)["brokerMemberGroup"]["brokerAddrs"]
    finally:
        connection.close()
    found: str | None = members.get("0")
    return found


def has_topic(address: str, topic: str) -> bool:
    """Whether a broker knows the topic; a replica of RocketMQ asks its master for them every 10 s."""
    return ask_broker(address, 351, topic=topic, lo="false") == 0


def can_send(client: BlockingClient, body: bytes) -> bool:
    """Whether the topic's master took the message; where it did not, the route is asked for again."""
    try:
        client.send(Message("t", body))
        return True
    except MillstreamError:
        client.conversations.doubt_route("t")
        return False


def read_all(client: BlockingClient) -> set[bytes]:
    """What the topic's master holds; nothing where the route names one that is none any more."""
    try:
        ranges = [(item.queue, item.range) for item in client.queue_ranges("t")]
        batches = [batch for queue, held in ranges for batch in client.read(queue, held.min_offset, held.max_offset)]
    except MillstreamError:
        client.conversations.doubt_route("t")
        return set()
    return {message.body for batch in batches for message in batch.messages()}


def test_java_brokers_take_ids_form_a_set_and_fail_over_to_each_other(tmp_path: Path, running: ExitStack) -> None:
    options = ("--port", "0", "--set", "controller.enabled=true", "--set", "controller.port=0")
    process = RoleProcess("nameserver", tmp_path / "ns", options=options, log=tmp_path / "ns.log")
    ours = running.enter_context(process).addresses
    sets = Sets(ours["controller"])
    where = {"nameserver": ours["nameserver"], "controller": ours["controller"]}
    try:
        first = running.enter_context(ReferenceReplica(tmp_path / "one", NAME, **where))
        sets.until([1], 1)
        second = running.enter_context(ReferenceReplica(tmp_path / "two", NAME, **where))
    except Missing as missing:
        pytest.skip(f"the reference brokers cannot run here: {missing}")
    client = running.enter_context(BlockingClient(ours["nameserver"]))
    # Without a type: replicas of RocketMQ 5.3.3 fail to copy topics that have attributes.
    settings = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    assert ask_broker(first.address, 17, topic="t", defaultTopic="TBW102", **settings) == 0
    until(lambda: has_topic(second.address, "t"))
    assert client.send(Message("t", b"before")).queue.broker_name == NAME
    before = sets.until([1, 2], 1)
    first.kill()
    after = sets.until([2], 2)
    assert (after["masterAddress"], after["masterEpoch"]) == (second.address, before["masterEpoch"] + 1)
    until(lambda: can_send(client, b"after"))
    first.start()
    back = sets.until([1, 2], 2)
    assert back["masterEpoch"] == after["masterEpoch"]
    who = {"clusterName": "DefaultCluster", "brokerName": NAME, "brokerId": "1", "designateElect": "true"}
    assert sets.ask(1002, b"", **who).code == 0
    assert sets.until([1, 2], 1)["masterEpoch"] == after["masterEpoch"] + 1
    # A master of RocketMQ stores what it is sent until it hears of its successor, and cuts it off then.
    until(lambda: master_of(ours["nameserver"]) == first.address)
    client.conversations.doubt_route("t")
    until(lambda: can_send(client, b"last"))
    until(lambda: {b"before", b"after", b"last"} <= read_all(client))
