"""Three controllers as processes: what they agreed on outlives the kill of any of them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from database_servers import free_port
from millstream.client.blocking import BlockingConnection
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.child import RoleProcess
from patience import eventually_blocking

pytestmark = pytest.mark.kill

WHO = {"clusterName": "c", "brokerName": "b"}


def ask(port: int, code: int, **ext: str) -> RemotingCommand:
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout_s=10)
    try:
        return connection.request(RemotingCommand(code, ext), 10)
    finally:
        connection.close()


def leader_of(ports: list[int]) -> int:
    """The port of the one that leads."""
    found: list[int] = []

    def is_led() -> bool:
        found[:] = [
            port for port in ports if ask(port, RequestCode.GET_CONTROLLER_METADATA).ext.get("isLeader") == "true"
        ]
        return len(found) == 1

    eventually_blocking(is_led, not_yet=(MillstreamError, OSError))
    return found[0]


def test_a_killed_leader_takes_nothing_with_it_that_was_agreed_on(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    peers = ", ".join(f'"n{number}-127.0.0.1:{port}"' for number, port in enumerate(ports))
    with ExitStack() as running:
        processes = {}
        for number, port in enumerate(ports):
            file = tmp_path / f"{number}.toml"
            file.write_text(f'port = {port}\n[controller]\nid = "n{number}"\npeers = [{peers}]\n')
            role = RoleProcess("controller", tmp_path / f"d{number}", options=("-c", str(file)), log=tmp_path / "log")
            processes[port] = running.enter_context(role)
        old = leader_of(ports)
        where = "127.0.0.1:1"
        for code, ext in (
            (RequestCode.APPLY_BROKER_ID, {"appliedBrokerId": "1", "registerCheckCode": f"{where};1"}),
            (RequestCode.REGISTER_REPLICA, {"brokerId": "1", "brokerAddress": where}),
        ):
            assert ask(old, code, **WHO, **ext).code == 0
        processes[old].kill()
        left = [port for port in ports if port != old]
        new = leader_of(left)
        answer = ask(new, RequestCode.GET_NEXT_BROKER_ID, **WHO)
        assert (answer.code, answer.ext["nextBrokerId"]) == (0, "2")
        (follower,) = (port for port in left if port != new)
        refused = ask(follower, RequestCode.GET_NEXT_BROKER_ID, **WHO)
        assert refused.code == 2007
        assert f"127.0.0.1:{new}" in (refused.remark or "")
