"""RocketMQ's admin tool (5.3.3), unmodified, at a controller of ours: what it prints of it, and what it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from interop.admin_tool import AdminTool
from interop.driver import Missing
from millstream.client.blocking import BlockingConnection
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess

NAME, CLUSTER = "broker-a", "DefaultCluster"
WHO = {"clusterName": CLUSTER, "brokerName": NAME}


class Replicas:
    """Replicas played by requests of ours, at addresses where nobody listens."""

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self._connection = BlockingConnection(controller, timeout_s=10)

    def ask(self, code: int, body: Any = None, **ext: object) -> RemotingCommand:
        fields = {name: str(value) for name, value in ext.items()}
        told = b"" if body is None else json.dumps(body).encode()
        return self._connection.request(RemotingCommand(code, fields, told), 10)

    def add(self, *numbers: int) -> None:
        """They register, are heard for a minute, and the first of them becomes the master of them all."""
        for number in numbers:
            where = f"127.0.0.1:{number}"
            self.ask(1013, **WHO, appliedBrokerId=number, registerCheckCode=f"{where};1")
            self.ask(1003, **WHO, brokerId=number, brokerAddress=where)
            told = {"brokerId": number, "brokerAddr": where, "heartbeatTimeoutMills": 60_000, "epoch": 1}
            assert self.ask(904, **WHO, **told, maxOffset=0).code == 0
        assert self.ask(1002, **WHO, brokerId=numbers[0]).code == 0
        wanted = {"syncStateSet": [*numbers], "syncStateSetEpoch": 1}
        assert self.ask(1001, wanted, brokerName=NAME, masterBrokerId=numbers[0], masterEpoch=1).code == 0

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoleProcess]:
    """A nameserver with a controller in its process."""
    directory = tmp_path_factory.mktemp("nameserver")
    options = ("--port", "0", "--set", "controller.enabled=true", "--set", "controller.port=0")
    with RoleProcess("nameserver", directory / "data", options=options, log=directory / "log") as process:
        yield process


@pytest.fixture(scope="module")
def tool(nameserver: RoleProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminTool]:
    try:
        started = AdminTool(nameserver.addresses["nameserver"], tmp_path_factory.mktemp("mqadmin") / "home")
    except Missing as missing:
        pytest.skip(f"mqadmin cannot run here: {missing}")
    with started:
        yield started


@pytest.fixture
def replicas(nameserver: RoleProcess) -> Iterator[Replicas]:
    found = Replicas(nameserver.addresses["controller"])
    found.add(1, 2, 3)
    yield found
    found.ask(1011, **WHO, isCleanLivingBroker="true")
    found.close()


def values(printed: str) -> dict[str, str]:
    """The lines `#name value` and `name = value` of what is printed."""
    lines = (line.replace("=", " ").split() for line in printed.splitlines() if not line.startswith("="))
    return {words[0].strip("#:"): words[-1] for words in lines if len(words) > 1}


def in_sync(printed: str) -> list[int]:
    """The ids of the replicas that are printed as in sync."""
    return [int(found) for found in re.findall(r"^InSyncReplica:.* brokerId=(\d+)", printed, re.MULTILINE)]


def test_it_prints_who_leads_the_controllers(tool: AdminTool, nameserver: RoleProcess) -> None:
    where = nameserver.addresses["controller"]
    printed = values(tool.done("getControllerMetaData", a=where))
    assert printed["ControllerGroup"] == "DefaultControllerGroup"
    assert printed["ControllerLeaderId"] == "n0"
    assert printed["ControllerLeaderAddress"] == where
    assert printed["Peer"] == f"n0:{where}"


def test_it_prints_a_sync_state_set(tool: AdminTool, replicas: Replicas) -> None:
    printed = tool.done("getSyncStateSet", a=replicas.controller, b=NAME)
    told = values(printed)
    assert (told["MasterBrokerId"], told["MasterAddr"]) == ("1", "127.0.0.1:1")
    assert (told["MasterEpoch"], told["SyncStateSetEpoch"], told["SyncStateSetNums"]) == ("1", "2", "3")
    assert in_sync(printed) == [1, 2, 3]
    assert printed.count("alive=true") == 3


def test_it_has_another_master_elected_once(tool: AdminTool, replicas: Replicas) -> None:
    wish = {"a": replicas.controller, "b": 2, "bn": NAME, "c": CLUSTER}
    printed = tool.done("electMaster", **wish)
    assert values(printed)["BrokerMasterAddr"] == "127.0.0.1:2"
    assert values(tool.done("getSyncStateSet", a=replicas.controller, b=NAME))["MasterBrokerId"] == "2"
    assert "CODE: 2011" in tool.refused("electMaster", **wish)
    assert "CODE: 2010" in tool.refused("electMaster", **{**wish, "b": 9})


def test_it_cleans_dead_replicas_and_living_ones_on_purpose(tool: AdminTool, replicas: Replicas) -> None:
    wish = {"a": replicas.controller, "b": "3", "bn": NAME, "c": CLUSTER}
    assert "CODE: 2009" in tool.refused("cleanBrokerMetadata", **wish)
    assert "success" in tool.done("cleanBrokerMetadata", **wish, l=True)
    assert in_sync(tool.done("getSyncStateSet", a=replicas.controller, b=NAME)) == [1, 2]
    replicas.ask(904, **WHO, brokerId=2, brokerAddr="127.0.0.1:2", goodbye="true")
    assert "success" in tool.done("cleanBrokerMetadata", **{**wish, "b": "2"})
    assert in_sync(tool.done("getSyncStateSet", a=replicas.controller, b=NAME)) == [1]


def test_it_prints_settings_and_changes_those_that_can_be_changed(tool: AdminTool, nameserver: RoleProcess) -> None:
    where = nameserver.addresses["controller"]
    told = values(tool.done("getControllerConfig", a=where))
    assert (told["controllerDLegerSelfId"], told["enableElectUncleanMaster"]) == ("n0", "false")
    assert told["controllerDLegerPeers"] == f"n0-{where}"
    for value in ("true", "false"):
        assert "success" in tool.done("updateControllerConfig", a=where, k="enableElectUncleanMaster", v=value)
        assert values(tool.done("getControllerConfig", a=where))["enableElectUncleanMaster"] == value
    assert "cannot be changed" in tool.refused("updateControllerConfig", a=where, k="controllerDLegerGroup", v="x")
