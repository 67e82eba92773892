"""Messages between controllers: they arrive in order while a connection holds, and are lost while there is none."""

from __future__ import annotations

from millstream.controller.peer_lines import MAX_WAITING, PeerLines
from millstream.controller.replicated_log import ControllerPeer
from millstream.protocol.remoting.administration.controller_requests import RaftEnvelope
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection
from millstream.transport.remoting_server import RemotingServer
from patience import eventually


class Listener:
    """Another controller's port, and what came in there."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[bytes] = []
        self.envelopes: set[RaftEnvelope] = set()
        self.server = RemotingServer({9110: self.hear}, port=port)

    def hear(self, command: RemotingCommand, _connection: Connection) -> None:
        self.heard.append(command.body)
        self.envelopes.add(RaftEnvelope.decode(command.ext))


async def test_messages_arrive_in_order_with_who_sends_them_to_whom() -> None:
    listener = Listener()
    port = await listener.server.start()
    lines = PeerLines("g", "n0", [ControllerPeer("n1", f"127.0.0.1:{port}")])
    told = [str(number).encode() for number in range(MAX_WAITING)]
    for message in told:
        lines.send("n1", message)
    lines.send("n9", b"nobody")
    await eventually(lambda: len(listener.heard) == len(told))
    lines.send("n1", b"later")
    await eventually(lambda: listener.heard == [*told, b"later"])
    assert listener.envelopes == {RaftEnvelope("g", "n0", "n1")}
    await lines.close()
    await listener.server.close()


async def test_a_controller_that_comes_back_is_reached_again_and_hears_nothing_old() -> None:
    first = Listener()
    port = await first.server.start()
    lines = PeerLines("g", "n0", [ControllerPeer("n1", f"127.0.0.1:{port}")])
    lines.send("n1", b"one")
    await eventually(lambda: first.heard == [b"one"])
    await first.server.close()
    await eventually(lambda: not lines._lines["n1"]._connection.is_open)  # type: ignore[union-attr]
    lines.send("n1", b"lost")
    await eventually(lambda: lines._lines["n1"]._failed)
    again = Listener(port)
    await again.server.start()

    def is_reached() -> bool:
        lines.send("n1", b"new")
        return bool(again.heard)

    await eventually(is_reached)
    assert set(again.heard) == {b"new"}
    await lines.close()
    await again.server.close()


async def test_nothing_waits_for_ever_for_a_controller_that_is_not_there() -> None:
    lines = PeerLines("g", "n0", [ControllerPeer("n1", "127.0.0.1:1"), ControllerPeer("n2", "no address")])
    for number in range(MAX_WAITING * 3):
        lines.send("n1", str(number).encode())
        lines.send("n2", b"x")
    assert len(lines._lines["n1"]._waiting) <= MAX_WAITING
    await eventually(lambda: all(line._failed for line in lines._lines.values()))
    await lines.close()
