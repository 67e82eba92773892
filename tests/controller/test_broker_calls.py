"""What a controller tells brokers when many masters die at one time."""

from __future__ import annotations

import asyncio

import pytest

from millstream.controller import broker_calls
from millstream.controller.broker_calls import BrokerCalls
from millstream.model.errors import Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.command import RemotingCommand
from patience import eventually


class _Opened:
    """Connections that are there once `gate` is set; what is sent is kept with the port that it went to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.sent: list[tuple[int, int]] = []

    async def open(self, address: Address, **_: object) -> _Connection:
        await self.gate.wait()
        if address.port == 666:
            raise Unreachable("nobody listens")
        return _Connection(self, address.port)


class _Connection:
    def __init__(self, opened: _Opened, port: int) -> None:
        self._opened = opened
        self._port = port

    def notify(self, command: RemotingCommand) -> None:
        self._opened.sent.append((self._port, command.code))

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> _Opened:
    opened = _Opened()
    monkeypatch.setattr(broker_calls.RemotingConnection, "open", opened.open)
    monkeypatch.setattr(broker_calls, "MAX_LINES", 2)
    return opened


async def test_brokers_over_the_limit_of_lines_are_told_once_others_have_been(opened: _Opened) -> None:
    calls = BrokerCalls()
    for port in (1, 666, 3, 4, 5):
        calls.notify(f"h:{port}", RemotingCommand(7))
    opened.gate.set()
    await eventually(lambda: len(opened.sent) == 4)
    assert sorted(opened.sent) == [(1, 7), (3, 7), (4, 7), (5, 7)]
    await calls.close()


async def test_a_broker_that_waits_is_told_the_newest_alone(opened: _Opened) -> None:
    calls = BrokerCalls()
    for port, code in ((1, 7), (2, 7), (3, 7), (3, 8)):
        calls.notify(f"h:{port}", RemotingCommand(code))
    opened.gate.set()
    await eventually(lambda: len(opened.sent) == 3)
    assert sorted(opened.sent) == [(1, 7), (2, 7), (3, 8)]
    await calls.close()


async def test_a_broker_over_the_limit_of_those_that_wait_is_not_told(
    opened: _Opened, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broker_calls, "MAX_WAITING", 1)
    calls = BrokerCalls()
    for port in (1, 2, 3, 4):
        calls.notify(f"h:{port}", RemotingCommand(7))
    assert "h:4 is not told" in caplog.text
    await calls.close()
    opened.gate.set()
    await asyncio.sleep(0)
    assert opened.sent == []
