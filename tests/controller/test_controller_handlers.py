"""What brokers and tools ask of a controller, over a real connection: each code and each refusal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from replica_set_samples import ME, NAME, LoneController

from millstream.controller.remoting import ControllerHandlers
from millstream.controller.replicated_log import LogRole
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.java_formats import decode_java_properties
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_server import RemotingServer
from patience import eventually

SET = {"clusterName": "c", "brokerName": NAME}


class Asked:
    """A controller that is alone, and a connection to it."""

    def __init__(self, server: RemotingServer, connection: RemotingConnection, lone: LoneController) -> None:
        self.server = server
        self.port = server.port
        self.connection = connection
        self.lone = lone

    async def ask(self, code: int, body: Any = None, **ext: object) -> RemotingCommand:
        told = b"" if body is None else json.dumps(body).encode()
        fields = {name: str(value) for name, value in ext.items()}
        return await self.connection.request(RemotingCommand(code, fields, told), 5)

    async def done(self, code: int, body: Any = None, **ext: object) -> RemotingCommand:
        answer = await self.ask(code, body, **ext)
        assert answer.code == 0, answer
        return answer

    async def refused(self, code: int, expected: int, body: Any = None, **ext: object) -> str:
        answer = await self.ask(code, body, **ext)
        assert (answer.code, answer.remark is not None) == (expected, True), answer
        return answer.remark or ""

    async def add(self, *numbers: int) -> None:
        """Replicas come up as a broker of RocketMQ does, all but its wish for a master."""
        for number in numbers:
            code = f"h{number}:10911;{number}"
            await self.done(1013, **SET, appliedBrokerId=number, registerCheckCode=code)
            await self.done(1003, **SET, brokerId=number, brokerAddress=f"h{number}:10911", invokeTime=1)
            await self.beat(number)

    async def beat(self, number: int, **ext: object) -> RemotingCommand:
        told = {"brokerAddr": f"h{number}:10911", "brokerId": number, "epoch": 1, "maxOffset": 100, **ext}
        return await self.done(904, **SET, **told)

    async def lead(self, *numbers: int) -> None:
        """These replicas are there, the first of them is the master and all are in the set."""
        await self.add(*numbers)
        await self.done(1002, **SET, brokerId=numbers[0])
        if len(numbers) > 1:
            await self.done(1001, wanted([*numbers], 1), brokerName=NAME, masterBrokerId=numbers[0], masterEpoch=1)


def wanted(members: list[int], epoch: int) -> dict[str, Any]:
    return {"syncStateSet": members, "syncStateSetEpoch": epoch}


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    lone = LoneController()
    server = RemotingServer(ControllerHandlers(lone.controller).table)
    port = await server.start()
    connection = await RemotingConnection.open(Address("127.0.0.1", port))
    yield Asked(server, connection, lone)
    await connection.close()
    await server.close()
    await lone.controller.close()


async def test_a_new_broker_takes_an_id_registers_and_becomes_the_first_master(asked: Asked) -> None:
    assert (await asked.done(1012, **SET)).ext == {**SET, "nextBrokerId": "1"}
    taken = await asked.done(1013, **SET, appliedBrokerId=1, registerCheckCode="h1:10911;5")
    assert taken.ext == SET
    registered = await asked.done(1003, **SET, brokerId=1, brokerAddress="h1:10911", invokeTime=1)
    assert registered.ext == SET
    assert json.loads(registered.body) == {"syncStateSet": [], "syncStateSetEpoch": 0}
    elected = await asked.done(1002, **SET, brokerId=1, designateElect="false", invokeTime=2)
    master = {"masterBrokerId": "1", "masterAddress": "h1:10911", "masterEpoch": "1", "syncStateSetEpoch": "1"}
    assert elected.ext == master
    assert json.loads(elected.body) == {
        "brokerMemberGroup": {"cluster": "c", "brokerName": NAME, "brokerAddrs": {"1": "h1:10911"}},
        "syncStateSet": [1],
    }
    assert (await asked.done(1012, **SET)).ext["nextBrokerId"] == "2"


async def test_a_second_broker_learns_of_the_master_when_it_registers(asked: Asked) -> None:
    await asked.lead(1)
    await asked.beat(1)
    await asked.done(1013, **SET, appliedBrokerId=2, registerCheckCode="h2:10911;5")
    registered = await asked.done(1003, **SET, brokerId=2, brokerAddress="h2:10911")
    master = {"masterBrokerId": "1", "masterAddress": "h1:10911", "masterEpoch": "1", "syncStateSetEpoch": "1"}
    assert registered.ext == SET | master
    assert json.loads(registered.body) == wanted([1], 1)


async def test_an_id_is_taken_once_and_again_by_its_holder(asked: Asked) -> None:
    await asked.done(1013, **SET, appliedBrokerId=1, registerCheckCode="h1:10911;5")
    await asked.done(1013, **SET, appliedBrokerId=1, registerCheckCode="h1:10911;5")
    await asked.refused(1013, 2014, **SET, appliedBrokerId=1, registerCheckCode="h2:10911;5")
    await asked.refused(1013, 2014, clusterName="c", brokerName="b", appliedBrokerId=2, registerCheckCode="h2:1;5")


async def test_who_is_not_known_is_told_to_register(asked: Asked) -> None:
    await asked.refused(1003, 2010, **SET, brokerId=1, brokerAddress="h1:10911")
    await asked.refused(1002, 2010, **SET, brokerId=1)
    answer = await asked.ask(904, **SET, brokerAddr="h1:10911", brokerId=1)
    assert answer.code == 2010


async def test_the_master_changes_its_set(asked: Asked) -> None:
    await asked.lead(1)
    await asked.add(2)
    answer = await asked.done(1001, wanted([2, 1], 1), brokerName=NAME, masterBrokerId=1, masterEpoch=1, invokeTime=1)
    assert answer.ext == {"newSyncStateSetEpoch": "2"}
    assert json.loads(answer.body) == wanted([1, 2], 2)


async def test_a_wish_for_a_set_is_refused_with_rocketmqs_codes(asked: Asked) -> None:
    await asked.lead(1, 2)
    who = {"brokerName": NAME, "masterBrokerId": 1, "masterEpoch": 1}
    await asked.refused(1001, 2013, wanted([1], 2), **{**who, "brokerName": "nobody"})
    await asked.refused(1001, 2013, wanted([1, 2], 2), **who)
    await asked.refused(1001, 2002, wanted([1], 2), **{**who, "masterBrokerId": 2})
    await asked.refused(1001, 2000, wanted([1], 2), **{**who, "masterEpoch": 0})
    await asked.refused(1001, 2001, wanted([1], 1), **who)
    await asked.refused(1001, 2003, wanted([1, 3], 2), **who)
    await asked.refused(1001, 2013, wanted([2], 2), **who)
    asked.lone.clock.advance_ms(1900)
    await asked.beat(1)
    asked.lone.clock.advance_ms(200)
    await asked.add(3)
    await asked.refused(1001, 2006, wanted([1, 2, 3], 2), **who)


async def test_an_election_where_the_master_lives_names_it_with_2011(asked: Asked) -> None:
    await asked.lead(1, 2)
    answer = await asked.ask(1002, **SET, brokerId=2)
    assert answer.code == 2011
    assert answer.ext == {
        "masterBrokerId": "1", "masterAddress": "h1:10911", "masterEpoch": "1", "syncStateSetEpoch": "2",
    }  # fmt: skip
    assert json.loads(answer.body) == {"syncStateSet": [1, 2]}


async def test_an_election_that_finds_nobody_is_refused_by_who_asked(asked: Asked) -> None:
    await asked.lead(1, 2)
    await asked.add(3)
    await asked.refused(1002, 2012, **SET, brokerId=3, designateElect="true")
    asked.lone.clock.advance_ms(2100)
    await asked.refused(1002, 2012, **SET, brokerId=2)
    await asked.refused(1002, 2004, **SET, brokerId=-1)


async def test_an_operator_designates_another_member_and_all_replicas_are_told(asked: Asked) -> None:
    await asked.lead(1, 2)
    asked.lone.sent.clear()
    answer = await asked.done(1002, **SET, brokerId=2, designateElect="true")
    master = {"masterBrokerId": "2", "masterAddress": "h2:10911", "masterEpoch": "2", "syncStateSetEpoch": "3"}
    assert answer.ext == master
    assert json.loads(answer.body)["syncStateSet"] == [1, 2]
    assert [(address, command.code) for address, command in asked.lone.sent] == [("h1:10911", 1008), ("h2:10911", 1008)]
    for _, command in asked.lone.sent:
        assert command.ext == master
        assert json.loads(command.body) == wanted([1, 2], 3)


async def test_a_set_is_told_to_whoever_asks_and_a_name_that_is_not_known_refused(asked: Asked) -> None:
    await asked.lead(1, 2)
    answer = await asked.done(1004, brokerName=NAME)
    assert answer.ext == {"masterBrokerId": "1", "masterAddress": "h1:10911", "masterEpoch": "1"}
    assert json.loads(answer.body) == wanted([1, 2], 2)
    await asked.refused(1004, 2008, brokerName="nobody")


async def test_sets_are_told_with_who_is_in_them_and_who_lives(asked: Asked) -> None:
    await asked.lead(1, 2)
    asked.lone.clock.advance_ms(2100)
    await asked.add(3)
    table = json.loads((await asked.done(1006, [NAME, "nobody"])).body)["replicasInfoTable"]

    def row(number: int, alive: bool) -> dict[str, Any]:
        return {"brokerName": NAME, "brokerId": number, "brokerAddress": f"h{number}:10911", "alive": alive}

    assert table == {
        NAME: {
            "masterBrokerId": 1, "masterAddress": "h1:10911", "masterEpoch": 1, "syncStateSetEpoch": 2,
            "inSyncReplicas": [row(1, False), row(2, False)], "notInSyncReplicas": [row(3, True)],
        }
    }  # fmt: skip


async def test_everybody_learns_who_leads_the_controllers(asked: Asked) -> None:
    assert (await asked.done(1005)).ext == {
        "group": "DefaultControllerGroup", "controllerLeaderId": "n0", "controllerLeaderAddress": ME.address,
        "isLeader": "true", "peers": f"n0:{ME.address}",
    }  # fmt: skip


async def test_settings_are_told_and_two_of_them_changed(asked: Asked) -> None:
    told = decode_java_properties((await asked.done(1010)).body)
    assert (told["controllerDLegerSelfId"], told["enableElectUncleanMaster"]) == ("n0", "false")

    async def change(text: bytes) -> RemotingCommand:
        return await asked.connection.request(RemotingCommand(1009, {}, text), 5)

    assert (await change(b"enableElectUncleanMaster=true\nnotifyBrokerRoleChanged=false")).code == 0
    told = decode_java_properties((await asked.done(1010)).body)
    assert (told["enableElectUncleanMaster"], told["notifyBrokerRoleChanged"]) == ("true", "false")
    for text, words in (
        (b"controllerDLegerGroup=x", "cannot be changed"),
        (b"configStorePath=/x", "no setting"),
        (b"enableElectUncleanMaster=perhaps", "cannot be"),
    ):
        answer = await change(text)
        assert (answer.code, words in (answer.remark or "")) == (29, True)


async def test_dead_replicas_are_forgotten_and_living_ones_on_purpose_alone(asked: Asked) -> None:
    await asked.lead(1, 2)
    await asked.refused(1011, 2009, **SET)
    await asked.refused(1011, 2009, **SET, brokerControllerIdsToClean="2")
    await asked.refused(1011, 2009, **SET, brokerControllerIdsToClean="two")
    await asked.refused(1011, 2009, clusterName="c", brokerName="nobody")
    await asked.done(1011, **SET, brokerControllerIdsToClean="2", isCleanLivingBroker="true")
    assert json.loads((await asked.done(1004, brokerName=NAME)).body) == wanted([1], 3)
    await asked.done(1011, **SET, isCleanLivingBroker="true")
    await asked.refused(1004, 2008, brokerName=NAME)


async def test_a_master_gets_a_lease_and_nobody_else(asked: Asked) -> None:
    await asked.lead(1, 2)
    hint = {"masterEpoch": "1", "syncStateSetEpoch": "2"}
    assert (await asked.beat(1)).ext == {**hint, "leaseMs": "3000"}
    assert (await asked.beat(2)).ext == hint
    assert (await asked.ask(904, **SET, brokerAddr="h1:10911")).code == 2005
    await asked.done(1002, **SET, brokerId=2, designateElect="true")
    assert "leaseMs" not in (await asked.beat(1)).ext
    assert (await asked.beat(1)).ext["masterEpoch"] == "2", "by this a replica finds that it missed an election"


async def test_what_cannot_be_read_or_is_for_the_inside_of_rocketmqs_controllers_is_refused(asked: Asked) -> None:
    await asked.refused(1002, 13, clusterName="c")
    await asked.refused(1003, 13, **SET, brokerAddress="h1:10911", brokerId="x")
    await asked.refused(1001, 13, [1], brokerName=NAME, masterBrokerId=1, masterEpoch=1)
    await asked.refused(1006, 13, {"no": "list"})
    for code in (1007, 1008, 1014, 1015, 1016, 1017, 1018):
        await asked.refused(code, 3)


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (1001, {"brokerName": NAME, "masterBrokerId": "1", "masterEpoch": "1"}),
        (1002, {**SET, "brokerId": "1"}),
        (1003, {**SET, "brokerId": "1", "brokerAddress": "h1:10911"}),
        (1004, {"brokerName": NAME}),
        (1006, {}),
        (1011, SET),
        (1012, SET),
        (1013, {**SET, "appliedBrokerId": "1", "registerCheckCode": "h1:10911;5"}),
    ],
)
async def test_a_controller_that_does_not_lead_says_who_does_with_2007(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, code: int, ext: dict[str, str]
) -> None:
    monkeypatch.setattr(type(asked.lone.log), "role", LogRole.FOLLOWER)
    bodies: dict[int, Any] = {1001: wanted([1], 1), 1006: [NAME]}
    answer = await asked.ask(code, bodies.get(code), **ext)
    assert answer.code == 2007
    assert answer.ext == {"controllerLeaderId": "n0", "controllerLeaderAddress": ME.address}


async def test_a_controller_that_does_not_lead_takes_heartbeats_and_names_the_leader(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked.lead(1)
    monkeypatch.setattr(type(asked.lone.log), "role", LogRole.FOLLOWER)
    assert (await asked.beat(1)).ext == {"controllerLeaderId": "n0", "controllerLeaderAddress": ME.address}
    assert (await asked.done(1005)).ext["isLeader"] == "false"


async def test_a_master_whose_connection_closes_and_whose_port_is_closed_is_replaced_at_once(asked: Asked) -> None:
    await asked.lead(1, 2)
    other = await RemotingConnection.open(Address("127.0.0.1", asked.port))
    fields = {**SET, "brokerAddr": "h1:10911", "brokerId": "1", "epoch": "1", "maxOffset": "100"}
    assert (await other.request(RemotingCommand(904, fields), 5)).code == 0
    asked.lone.closed.add("h1:10911")
    await other.close()
    await eventually(lambda: [command for _, command in asked.lone.sent if command.ext["masterBrokerId"] == "2"])
    assert (await asked.done(1004, brokerName=NAME)).ext["masterBrokerId"] == "2"


async def test_a_master_whose_heartbeats_come_over_another_connection_stays(asked: Asked) -> None:
    await asked.lead(1, 2)
    other = await RemotingConnection.open(Address("127.0.0.1", asked.port))
    fields = {**SET, "brokerAddr": "h1:10911", "brokerId": "1", "epoch": "1", "maxOffset": "100"}
    assert (await other.request(RemotingCommand(904, fields), 5)).code == 0
    await asked.beat(1)
    asked.lone.closed.add("h1:10911")
    await other.close()
    await eventually(lambda: asked.server.connections == 1)
    # What a closed connection begins is done after some turns.
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked.lone.controller.lives(NAME, 1)


async def test_a_master_whose_connection_closes_and_whose_port_is_open_stays(asked: Asked) -> None:
    await asked.lead(1, 2)
    await asked.connection.close()
    await eventually(lambda: asked.server.connections == 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked.lone.controller.lives(NAME, 1)


async def test_a_controller_that_stops_does_not_take_its_own_closing_for_the_death_of_brokers() -> None:
    lone = LoneController()
    handlers = ControllerHandlers(lone.controller)
    server = RemotingServer(handlers.table)
    await server.start()
    connection = await RemotingConnection.open(Address("127.0.0.1", server.port))
    asked = Asked(server, connection, lone)
    await asked.lead(1, 2)
    lone.closed.add("h1:10911")
    handlers.close()
    await server.close()
    await eventually(lambda: not connection.is_open)
    for _ in range(5):
        await asyncio.sleep(0)
    assert lone.controller.lives(NAME, 1)
