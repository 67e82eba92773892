"""A controller as a role: alone or in a nameserver's process, with its settings, its page and what it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import decode_java_properties
from millstream.server.configuration.roles import (
    AccessControl,
    ControllerConfiguration,
    ControllerSettings,
    NameserverConfiguration,
    NameserverController,
    Tls,
)
from millstream.server.controller_role import parse_peers
from millstream.server.separate import SeparateRole
from millstream.store.snapshot import Snapshot
from millstream.transport.remoting_client import RemotingConnection
from patience import eventually, within_patience
from scrape import get, parse, value

WHO = {"clusterName": "c", "brokerName": "b"}

Ask = Callable[..., Awaitable[RemotingCommand]]


def configuration(directory: Path, **changes: Any) -> ControllerConfiguration:
    told: dict[str, Any] = {"port": 0, "metrics_port": 0, "directory": str(directory), "tls": Tls("off"), **changes}
    return ControllerConfiguration(**told)


@asynccontextmanager
async def running(told: ControllerConfiguration | NameserverConfiguration) -> AsyncIterator[dict[str, Address]]:
    role = SeparateRole(told)
    addresses = await role.start()
    try:
        yield addresses
    finally:
        await role.close()


@asynccontextmanager
async def asking(address: Address) -> AsyncIterator[Ask]:
    connection = await RemotingConnection.open(address)

    async def ask(code: int, **ext: object) -> RemotingCommand:
        fields = {name: str(told) for name, told in ext.items()}
        return await connection.request(RemotingCommand(code, fields), 5)

    yield ask
    await connection.close()


async def bring_up(ask: Ask, address: str) -> None:
    """A first replica takes its id, registers and becomes the master."""
    await ask(1013, **WHO, appliedBrokerId=1, registerCheckCode=f"{address};1")
    await ask(1003, **WHO, brokerId=1, brokerAddress=address)
    assert (await ask(904, **WHO, brokerId=1, brokerAddr=address, epoch=0, maxOffset=0)).code == 0
    assert (await ask(1002, **WHO, brokerId=1)).code == 0


async def test_a_controller_knows_its_sets_after_a_restart(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as addresses, asking(addresses["controller"]) as ask:
        assert set(addresses) == {"controller", "metrics"}
        # An address where somebody listens, or it would be dead when this connection closes.
        master = f"{addresses['controller'].host}:{addresses['controller'].port}"
        await bring_up(ask, master)
    async with running(configuration(tmp_path)) as addresses, asking(addresses["controller"]) as ask:
        told = await ask(1004, brokerName="b")
        assert (told.ext["masterBrokerId"], told.ext["masterAddress"]) == ("1", master)
        assert json.loads(told.body) == {"syncStateSet": [1], "syncStateSetEpoch": 1}


async def test_a_nameserver_runs_a_controller_where_it_is_told_to(tmp_path: Path) -> None:
    told = NameserverConfiguration(
        port=0, directory=str(tmp_path), tls=Tls("off"), controller=NameserverController(enabled=True, port=0, id="n7")
    )
    async with running(told) as addresses, asking(addresses["controller"]) as ask:
        assert set(addresses) == {"controller", "nameserver"}
        metadata = await ask(1005)
        assert metadata.ext["controllerLeaderId"] == "n7"
        leader = addresses["controller"]
        assert metadata.ext["controllerLeaderAddress"] == f"{leader.host}:{leader.port}"
        async with asking(addresses["nameserver"]) as ask_nameserver:
            assert (await ask_nameserver(1005)).code == 3
            assert (await ask_nameserver(106)).code == 0


async def test_a_master_that_is_gone_is_replaced_by_a_replica_which_is_told(tmp_path: Path) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.read())
        writer.close()

    replica = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = replica.sockets[0].getsockname()[1]
    async with AsyncExitStack() as opened:
        addresses = await opened.enter_async_context(running(configuration(tmp_path)))
        ask = await opened.enter_async_context(asking(addresses["controller"]))
        async with asking(addresses["controller"]) as master:
            # Nothing listens at its port, so it is dead as soon as its connection closes.
            await bring_up(master, "127.0.0.1:1")
            where = f"127.0.0.1:{port}"
            await ask(1013, **WHO, appliedBrokerId=2, registerCheckCode=f"{where};1")
            await ask(1003, **WHO, brokerId=2, brokerAddress=where)
            await ask(904, **WHO, brokerId=2, brokerAddr=where, epoch=1, maxOffset=0, heartbeatTimeoutMills=60000)
            wanted = json.dumps({"syncStateSet": [1, 2], "syncStateSetEpoch": 1}).encode()
            connection = await RemotingConnection.open(addresses["controller"])
            fields = {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "1"}
            assert (await connection.request(RemotingCommand(1001, fields, wanted), 5)).code == 0
            await connection.close()
        told = await within_patience(heard.get())
        assert b'"code":1008' in told
        assert b'"masterBrokerId":"2"' in told
    replica.close()


async def test_the_page_tells_role_elections_requests_and_living_replicas(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as addresses, asking(addresses["controller"]) as ask:
        await bring_up(ask, "127.0.0.1:1")
        await ask(1004, brokerName="nobody")
        where = f"{addresses['metrics'].host}:{addresses['metrics'].port}"
        _, text = await asyncio.to_thread(get, where, "/metrics")
    page = parse(text)
    who = {"node_type": "controller"}
    assert value(page, "millstream_controller_role", **who) == 3
    assert value(page, "millstream_controller_active_broker_num", broker_set="b", **who) == 1
    assert value(page, "millstream_controller_election_total", election_result="new_master_elected") == 1
    assert value(page, "millstream_controller_election_total", election_result="no_master_elected") == 0
    requests = "millstream_controller_request_total"
    assert value(page, requests, request_type="CONTROLLER_APPLY_BROKER_ID", request_handle_status="success") == 1
    assert value(page, requests, request_type="CONTROLLER_GET_REPLICA_INFO", request_handle_status="failed") == 1


async def test_with_access_control_nobody_is_answered_unsigned(tmp_path: Path) -> None:
    async with running(configuration(tmp_path, access=AccessControl(True))) as addresses:
        for code in (904, 1001, 1002, 1003, 1004, 1005, 1006, 1009, 1010, 1011, 1012, 1013, 9110):
            async with asking(addresses["controller"]) as ask:
                assert (await ask(code, **WHO)).code == 16, code


def test_peers_are_read_as_rocketmq_writes_them() -> None:
    found = parse_peers(("n0-127.0.0.1:9877;n1-host-b:9878", "n2-[::1]:9879"))
    assert [(peer.id, peer.address) for peer in found] == [
        ("n0", "127.0.0.1:9877"), ("n1", "host-b:9878"), ("n2", "[::1]:9879"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["n0", "n0-host", "n0-host:x", "-host:1", "n0-host:0", "n0-a:1;n0-b:1"])
def test_peers_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(StartRefused) as refused:
        parse_peers((text,))
    assert refused.value.name == "ILLEGAL_SETTING"


async def test_a_controller_whose_state_is_missing_does_not_start_without_it(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as addresses, asking(addresses["controller"]) as ask:
        await bring_up(ask, "127.0.0.1:1")
    for name in ("controller.json", "controller.json.bak"):
        (tmp_path / name).unlink()
    with pytest.raises(StartRefused, match=r"controller\.json") as refused:
        await SeparateRole(configuration(tmp_path)).start()
    assert refused.value.name == "DATA_MISSING"


async def test_silence_and_lease_are_settings(tmp_path: Path) -> None:
    role = SeparateRole(configuration(tmp_path, controller=ControllerSettings(silence_ms=500, lease_ms=700)))
    addresses = await role.start()
    async with asking(addresses["controller"]) as ask:
        await bring_up(ask, "127.0.0.1:1")
        beat = await ask(904, **WHO, brokerId=1, brokerAddr="127.0.0.1:1", epoch=1, maxOffset=0)
        assert beat.ext["leaseMs"] == "700"
        assert role.controller_role is not None
        sets = role.controller_role.controller.sets
        await eventually(lambda: (found := sets.find("b")) is not None and found.master is None)
    await role.close()


async def settings_after(told: ControllerConfiguration, changes: bytes = b"") -> dict[str, str]:
    """What a controller says of its settings after a start, and after changes if there are any."""
    async with running(told) as addresses:
        connection = await RemotingConnection.open(addresses["controller"])
        if changes:
            assert (await connection.request(RemotingCommand(1009, {}, changes), 5)).code == 0
        answer = await connection.request(RemotingCommand(1010), 5)
        await connection.close()
    return decode_java_properties(answer.body)


async def test_settings_that_a_tool_changed_hold_over_restarts_until_they_are_configured_otherwise(
    tmp_path: Path,
) -> None:
    name = "enableElectUncleanMaster"
    told = configuration(tmp_path)
    assert (await settings_after(told, b"enableElectUncleanMaster=true"))[name] == "true"
    assert (await settings_after(told))[name] == "true"
    both = await settings_after(told, b"notifyBrokerRoleChanged=false")
    assert (both[name], both["notifyBrokerRoleChanged"]) == ("true", "false")
    # Written into the configuration, and taken out of it again: what was changed before that counts no more.
    configured = configuration(tmp_path, controller=ControllerSettings(unclean_elections=True))
    assert (await settings_after(configured))[name] == "true"
    back = await settings_after(told)
    assert (back[name], back["notifyBrokerRoleChanged"]) == ("false", "false")
    assert (await settings_after(told, b"notifyBrokerRoleChanged=true"))["notifyBrokerRoleChanged"] == "true"
    assert (await settings_after(told))["notifyBrokerRoleChanged"] == "true"


async def test_settings_that_cannot_be_kept_are_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_snapshot: Snapshot, _document: bytes) -> None:
        raise OSError(28, "planted")

    async with running(configuration(tmp_path)) as addresses:
        connection = await RemotingConnection.open(addresses["controller"])
        with monkeypatch.context() as patch:
            patch.setattr(Snapshot, "save", fail)
            refused = await connection.request(RemotingCommand(1009, {}, b"enableElectUncleanMaster=true"), 5)
        assert "MS-4004" in (refused.remark or "")
        answer = await connection.request(RemotingCommand(1010), 5)
        await connection.close()
    assert decode_java_properties(answer.body)["enableElectUncleanMaster"] == "false"
