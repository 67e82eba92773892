"""A controller as a process that is killed: it knows what it decided, and nobody dies for that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingConnection
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess
from patience import eventually_blocking

pytestmark = pytest.mark.kill

WHO = {"clusterName": "c", "brokerName": "b"}


@contextmanager
def connected(process: RoleProcess) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(process.addresses["controller"], timeout_s=10)
    yield connection
    connection.close()


def ask(connection: BlockingConnection, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    answer = connection.request(RemotingCommand(code, ext, body), 10)
    assert answer.code == 0, answer
    return answer


def beat(connection: BlockingConnection, number: str) -> RemotingCommand:
    """A heartbeat of a replica at an address where nobody listens."""
    return ask(connection, 904, **WHO, brokerId=number, brokerAddr=f"127.0.0.1:{number}", epoch="1", maxOffset="0")


def test_a_killed_controller_knows_its_sets_and_elects_only_when_a_master_is_silent(tmp_path: Path) -> None:
    def start(port: str = "0") -> RoleProcess:
        return RoleProcess("controller", tmp_path / "data", options=("--port", port), log=tmp_path / "log")

    with ExitStack() as running:
        first = running.enter_context(start())
        with connected(first) as connection:
            for number in ("1", "2"):
                where = f"127.0.0.1:{number}"
                ask(connection, 1013, **WHO, appliedBrokerId=number, registerCheckCode=f"{where};1")
                ask(connection, 1003, **WHO, brokerId=number, brokerAddress=where)
                beat(connection, number)
            ask(connection, 1002, **WHO, brokerId="1")
            wanted = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
            ask(connection, 1001, wanted, brokerName="b", masterBrokerId="1", masterEpoch="1")
            first.kill()
        second = running.enter_context(start(first.addresses["controller"].rpartition(":")[2]))
        with connected(second) as connection:
            told = ask(connection, 1004, brokerName="b")
            assert (told.ext["masterBrokerId"], told.ext["masterEpoch"]) == ("1", "1")
            assert told.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
            assert beat(connection, "1").ext["leaseMs"] == "3000"

            def is_replaced() -> bool:
                beat(connection, "2")
                return ask(connection, 1004, brokerName="b").ext.get("masterBrokerId") == "2"

            eventually_blocking(is_replaced)
            assert beat(connection, "2").ext["leaseMs"] == "3000"
            assert "leaseMs" not in beat(connection, "1").ext
