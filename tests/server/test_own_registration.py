"""The routes of a quickstart, which others cannot redirect."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from millstream.broker.broker import Broker
from millstream.broker.registrar import Registrar
from millstream.cluster.nameserver import RouteRegistry
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.registration import BrokerIdentity
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server import all_in_one as own_registration
from millstream.server.all_in_one import AllInOne, AllInOneOptions, OwnRegistration
from millstream.transport.remoting_client import RemotingConnection
from patience import PATIENCE_S


async def test_a_second_broker_of_the_default_name_takes_no_topic_of_a_quickstart_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = AllInOne(AllInOneOptions(tmp_path, grpc_port=0, remoting_port=0, nameserver_port=0))
    places = await server.start()
    broker = f"{places.broker.host}:{places.broker.port}"
    connection = await RemotingConnection.open(places.nameserver)
    maker = await RemotingConnection.open(places.broker)
    topic = {"topic": "t", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    assert (await maker.request(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, topic), 5)).code == 0

    async def leads_to() -> list[object]:
        told = json.loads((await connection.request(RemotingCommand(105, {"topic": "t"}), 5)).body)
        return [data["brokerAddrs"] for data in told["brokerDatas"]]

    who = BrokerIdentity("DefaultCluster", "broker-a", "192.0.2.1:10911")
    twin = Registrar([f"{places.nameserver.host}:{places.nameserver.port}"], who, lambda: [TopicConfig("u")])
    with caplog.at_level(logging.WARNING, "millstream.broker.registrar"):
        await twin.start()
    assert "MS-2350" in caplog.text
    assert broker in caplog.text
    assert await leads_to() == [{"0": broker}]
    for command in (who.farewell(), RemotingCommand(216, {"topic": "t"})):
        await connection.request(command, 5)
        assert await leads_to() == [{"0": broker}]
    await twin.close()
    assert await leads_to() == [{"0": broker}]
    await connection.close()
    await maker.close()
    await server.close()


async def test_the_registration_of_a_quickstart_is_repeated_at_each_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_registration, "REGISTRATION_INTERVAL_S", 0.01)
    broker, registry = Broker(tmp_path), RouteRegistry()
    await broker.start()
    own = OwnRegistration(broker, registry)
    own.start()
    registry.unregister(broker.name)
    async with asyncio.timeout(PATIENCE_S):
        while not registry.is_own(broker.name):  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.005)
    await own.close()
    await broker.close()
