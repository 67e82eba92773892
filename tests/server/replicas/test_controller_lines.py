"""Heartbeats to the controllers go on, whatever one of them answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.server.replicas.controller_lines import ControllerLines
from millstream.transport.remoting_server import RemotingServer
from patience import eventually

BEAT = BrokerHeartbeat("c", "127.0.0.1:1", "broker-a", 1)
Answer = Callable[[RemotingCommand], RemotingCommand]


def refuse(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark="planted")


def answer_nonsense(command: RemotingCommand) -> RemotingCommand:
    return command.response(ext={"masterEpoch": "many", "leaseMs": "-"})


def fail(_command: RemotingCommand) -> RemotingCommand:
    raise RuntimeError("planted")


class Controller:
    """Answers heartbeats as it is told, then well."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.beats = 0
        self.server = RemotingServer({RequestCode.BROKER_HEARTBEAT: self._answer}, "127.0.0.1", 0)

    def _answer(self, command: RemotingCommand, _connection: object) -> RemotingCommand:
        self.beats += 1
        return self.answers.pop(0)(command) if self.answers else command.response()


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    made = Controller()
    yield made
    await made.server.close()


@pytest.mark.parametrize("answer", [refuse, answer_nonsense, fail])
async def test_an_answer_of_any_kind_does_not_end_the_heartbeats(controller: Controller, answer: Answer) -> None:
    lines = ControllerLines([f"127.0.0.1:{await controller.server.start()}"])
    heard: list[RemotingCommand] = []

    def note(told: RemotingCommand, _sent_s: float) -> None:
        int(told.ext.get("masterEpoch", "0"))
        heard.append(told)

    lines.on_beat = note
    controller.answers = [answer] * 3
    lines.start(lambda: BEAT)
    try:
        await eventually(lambda: controller.beats > 4 and heard and heard[-1].code == 0)
    finally:
        await lines.close()


async def test_a_heartbeat_that_cannot_be_made_is_made_again_later(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ControllerLines([f"127.0.0.1:{await controller.server.start()}"])
    tries = 0

    def make() -> BrokerHeartbeat:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise AttributeError("planted")
        return BEAT

    lines.start(make)
    try:
        await eventually(lambda: controller.beats > 0)
    finally:
        await lines.close()
    assert len([one for one in caplog.records if one.exc_info]) == 1, "once for all that failed in a row"


async def test_bytes_that_are_no_answer_do_not_end_the_heartbeats() -> None:
    connections = 0

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1)
        writer.write(b"\x00\x00\x00\x08\xff\xff\xff\xffrubbish!")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    lines = ControllerLines([f"127.0.0.1:{server.sockets[0].getsockname()[1]}"])
    lines.start(lambda: BEAT)
    try:
        await eventually(lambda: connections > 3)
    finally:
        await lines.close()
        server.close()
