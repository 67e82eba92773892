"""What is received for HTTP clients and not yet written is bounded, and each receive has its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from http_ground import HttpGround

from millstream.model.errors import Unreachable
from millstream.model.handles import ReceiptHandle
from millstream.model.message import Address, StoredMessage
from millstream.model.operations import PoppedMessage
from millstream.proxy.http import unwritten
from millstream.proxy.http.unwritten import UnwrittenMessages
from millstream.proxy.processor import Processor, ReceiveRequest
from patience import eventually
from websocket_peer import WebSocketPeer

BODY_BYTES = 100
LIMIT_BYTES = 10 * BODY_BYTES
PATH = "/v1/groups/g{}/topics/orders/websocket"


class Source:
    """Gives one message at once to each receive, and notes whose it was."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.refused: set[str] = set()

    async def receive(self, wish: ReceiveRequest) -> list[PoppedMessage]:
        self.served.append(wish.client_id)
        if wish.client_id in self.refused:
            raise Unreachable("The broker is away.")
        return [popped(len(self.served))]


def popped(number: int) -> PoppedMessage:
    host = Address("127.0.0.1", 1)
    message = StoredMessage("orders", 0, number, number, bytes(BODY_BYTES), {}, 0, host, 0, host)
    return PoppedMessage(message, ReceiptHandle(number, 0, 60_000, 0, 0, "b", 0, number, number), 1)


class Clients:
    """Receives under way: `received` are those that have their message, and write it when they are told to."""

    def __init__(self) -> None:
        self.source = Source()
        self.room = UnwrittenMessages()
        self.received: dict[str, list[PoppedMessage]] = {}

    def begin(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._receive(name)) for name in names]

    def write(self, name: str) -> None:
        self.room.remove(self.received.pop(name))

    async def _receive(self, name: str) -> None:
        wish = ReceiveRequest(name, "g", "orders", "", 60_000)
        self.received[name] = await self.room.receive(cast("Processor", self.source), wish)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    monkeypatch.setattr(unwritten, "MAX_UNWRITTEN_BYTES", LIMIT_BYTES)
    return Clients()


async def turns(count: int = 40) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


NAMES = [f"{number:02}" for number in range(30)]


async def test_no_more_is_received_than_the_limit_until_some_is_written_and_all_come_in_their_order(
    clients: Clients,
) -> None:
    waiting = clients.begin(*NAMES)
    await turns()
    assert clients.source.served == NAMES[:10]
    for count, name in enumerate(NAMES, 1):
        clients.write(name)
        await turns()
        assert clients.source.served == NAMES[: count + 10]
        assert clients.room.used_bytes <= LIMIT_BYTES
    await asyncio.gather(*waiting)
    assert clients.room.used_bytes == 0


async def test_who_comes_while_others_wait_waits_behind_them(clients: Clients) -> None:
    clients.begin(*NAMES[:11])
    await turns()
    clients.write(NAMES[0])
    # Before the one that waits could go on.
    clients.begin("late")
    await turns()
    clients.write(NAMES[1])
    await turns()
    assert clients.source.served == [*NAMES[:11], "late"]


@pytest.mark.parametrize("after", range(4))
async def test_one_that_is_cancelled_in_any_turn_holds_no_other_up(clients: Clients, after: int) -> None:
    waiting = clients.begin(*NAMES[:12])
    await turns()
    clients.write(NAMES[0])
    await turns(after)
    waiting[10].cancel()
    await turns()
    clients.write(NAMES[1])
    await turns()
    assert NAMES[11] in clients.received
    for name in sorted(clients.received):
        clients.write(name)
    assert clients.room.used_bytes == 0


async def test_one_that_the_broker_refuses_takes_no_room(clients: Clients) -> None:
    clients.source.refused = {NAMES[10]}
    waiting = clients.begin(*NAMES[:12])
    await turns()
    clients.write(NAMES[0])
    await turns()
    assert isinstance(waiting[10].exception(), Unreachable)
    assert NAMES[11] in clients.received
    assert clients.room.used_bytes == LIMIT_BYTES


def note_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is held, each time before some of it was written and behind it."""
    held_bytes: list[int] = []
    remove = UnwrittenMessages.remove

    def noted(self: UnwrittenMessages, given: Sequence[PoppedMessage]) -> None:
        held_bytes.append(self.used_bytes)
        remove(self, given)
        held_bytes.append(self.used_bytes)

    monkeypatch.setattr(UnwrittenMessages, "remove", noted)
    return held_bytes


async def test_many_websockets_and_receives_that_get_large_messages_at_once_keep_to_the_limit(
    memory: HttpGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = bytes(80_000)
    monkeypatch.setattr(unwritten, "MAX_UNWRITTEN_BYTES", 4 * len(body))
    held_bytes = note_held(monkeypatch)
    for _ in range(8):
        await memory.post(body)
    # Each group has all of them, and a frame of one is larger than what is encoded within its turn.
    peers = [await WebSocketPeer.open(memory.port, PATH.format(number) + "?max_in_flight=2") for number in range(16)]
    receives = [memory.receive(group=f"r{number}", max="2") for number in range(16)]
    for answer in await asyncio.gather(*receives):
        assert len(answer) == 2
    for peer in peers:
        assert (await peer.receive())["messages"]
    assert 4 * len(body) <= max(held_bytes) <= 5 * len(body)
    for peer in peers:
        await peer.close()
    await eventually(lambda: not memory.server._traffic.sessions)
    assert held_bytes[-1] == 0
