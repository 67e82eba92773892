"""Brokers that cannot be connected to: who waits for them, and when they are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from millstream.model.errors import Unreachable
from millstream.proxy.remote import connection_pool as module
from millstream.proxy.remote.connection_pool import UnreachableBrokers
from millstream.transport.remoting_client import RemotingConnection
from patience import PATIENCE_S

BROKER = "10.0.0.1:10911"


class Broker:
    """Connects, refuses at once, or says nothing until it is told to."""

    def __init__(self) -> None:
        self.attempts = 0
        self.answers: Callable[[], bool] = lambda: True
        self.takes_s = 0.0

    async def connect(self, address: str) -> RemotingConnection:
        self.attempts += 1
        await asyncio.sleep(self.takes_s)
        if not self.answers():
            raise Unreachable(f"{address} does not answer.")
        return cast(RemotingConnection, self)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.01)
    monkeypatch.setattr(module, "RETRY_S", 0.01)


async def test_a_broker_that_refuses_at_once_is_asked_by_everybody() -> None:
    broker = Broker()
    broker.answers = lambda: False
    unheard = UnreachableBrokers(broker.connect)
    for _ in range(3):
        with pytest.raises(Unreachable):
            await unheard.connection(BROKER)
    assert broker.attempts == 3


@pytest.mark.usefixtures("quick")
async def test_nobody_waits_for_a_broker_that_was_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 60.0)
    broker = Broker()
    broker.answers, broker.takes_s = lambda: False, 0.02
    unheard = UnreachableBrokers(broker.connect)
    with pytest.raises(Unreachable, match="does not answer"):
        await unheard.connection(BROKER)
    with pytest.raises(Unreachable, match="did not answer of late"):
        await unheard.connection(BROKER)
    assert broker.attempts == 1
    assert await unheard.connection("10.0.0.2:10911", Broker().connect)
    unheard.close()


@pytest.mark.usefixtures("quick")
async def test_a_broker_that_answers_again_is_used_again_without_anybodys_waiting() -> None:
    broker = Broker()
    broker.answers, broker.takes_s = (lambda: broker.attempts > 3), 0.02
    unheard = UnreachableBrokers(broker.connect)
    with pytest.raises(Unreachable):
        await unheard.connection(BROKER)
    await asyncio.wait(unheard._trying.values())
    assert broker.attempts == 4
    assert await unheard.connection(BROKER) is cast(RemotingConnection, broker)


@pytest.mark.usefixtures("quick")
async def test_a_broker_that_nobody_asks_for_any_more_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGOTTEN_S", 0.05)
    broker = Broker()
    broker.answers, broker.takes_s = lambda: False, 0.02
    unheard = UnreachableBrokers(broker.connect)
    with pytest.raises(Unreachable):
        await unheard.connection(BROKER)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait(unheard._trying.values())
    assert not unheard._trying
