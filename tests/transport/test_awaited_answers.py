from __future__ import annotations

import asyncio

import pytest

from millstream.model.errors import TimedOut, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.transport import remoting_connection
from millstream.transport.remoting_client import RemotingConnection
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer

HELLO = 1


class Meeting:
    """A server that keeps the connections which said hello, and a client whose listener notes what it is asked."""

    def __init__(self) -> None:
        self.guests: list[Connection] = []
        self.asked: list[RemotingCommand] = []
        self.server = RemotingServer({HELLO: self.hello})

    def hello(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        self.guests.append(connection)
        return None if command.is_oneway else command.response()

    def listen(self, command: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(command)
        return None if command.ext.get("silent") else command.response(ext={"heard": command.ext["word"]})

    async def connect(self) -> RemotingConnection:
        client = await RemotingConnection.open(Address("127.0.0.1", await self.server.start()))
        client.listener = self.listen
        await client.request(RemotingCommand(HELLO), 5)
        return client


async def test_a_server_gets_the_answers_of_a_client_that_asks_it_at_the_same_time() -> None:
    meeting = Meeting()
    client = await meeting.connect()
    (guest,) = meeting.guests
    words = ["a", "b", "c"]
    asked = [guest.ask(RemotingCommand(220, {"word": word}), 5) for word in words]
    both = await asyncio.gather(client.request(RemotingCommand(HELLO), 5), *asked)
    assert both[0].is_response
    assert [answer.ext["heard"] for answer in both[1:]] == words
    await client.close()
    await meeting.server.close()


async def test_a_client_that_does_not_answer_or_goes_away_fails_the_question_alone() -> None:
    meeting = Meeting()
    client = await meeting.connect()
    (guest,) = meeting.guests
    with pytest.raises(TimedOut, match=f"{guest.peer.port} did not answer within 0.01 s"):
        await guest.ask(RemotingCommand(220, {"silent": "true"}), 0.01)
    waiting = guest.ask(RemotingCommand(220, {"silent": "true"}), 5)
    assert (await client.request(RemotingCommand(HELLO), 5)).is_response
    await client.close()
    with pytest.raises(Unreachable):
        await waiting
    with pytest.raises(Unreachable):
        await guest.ask(RemotingCommand(220), 5)
    await meeting.server.close()


async def test_a_client_has_only_so_many_questions_to_answer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_connection, "MAX_ASKED", 2)
    meeting = Meeting()
    client = await meeting.connect()
    (guest,) = meeting.guests
    waiting = [guest.ask(RemotingCommand(220, {"silent": "true"}), 5) for _ in range(2)]
    with pytest.raises(Exception, match="2 requests to answer already") as refused:
        await guest.ask(RemotingCommand(220), 5)
    assert getattr(refused.value, "name", "") == "TOO_MANY_REQUESTS"
    await client.close()
    assert all(isinstance(error, Unreachable) for error in await asyncio.gather(*waiting, return_exceptions=True))
    await meeting.server.close()


async def test_a_notice_is_a_oneway_request_that_nobody_waits_for() -> None:
    meeting = Meeting()
    client = await meeting.connect()
    command = RemotingCommand(HELLO)
    client.notify(command)
    assert command.flag & FLAG_ONEWAY
    await client.request(RemotingCommand(HELLO), 5)
    assert len(meeting.guests) == 3
    await client.close()
    client.notify(RemotingCommand(HELLO))
    await meeting.server.close()
