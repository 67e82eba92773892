"""Holds very many MQTT sessions, in a process of its own: each client subscribes once, acknowledges what comes, and
connects elsewhere when its connection is lost.

`python -m benchmarks.mqtt_session_load FIRST COUNT lasting|clean` obeys JSON lines: `{"do": "connect", "places":
[...]}` has client N connect at the place N modulo their number, and `{"do": "report"}` says what has happened since.
`{"do": "cut", "moves": false, "at_once": N}` closes all connections in one go; then all clients come back, to where
they were or each to another place. Clients come back as fast as 200 (or N) at a time can, without the wait that real
ones have.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections import deque
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.mqtt_packets import connect_from, connect_packet, source_of, subscribe_packet
from millstream.telemetry.processes import raise_descriptor_limit

__all__ = ["SessionLoad", "name_of", "payload_of", "topic_of"]

_AT_ONCE: Final = 200
_SPARE_DESCRIPTORS: Final = 50
_RECEIVE_BYTES: Final = 1 << 14
_RETRY_S: Final = 0.2
_PAYLOAD_BYTES: Final = 100
_LISTEN_S: Final = 0.1


def name_of(number: int) -> str:
    """The client id of that client."""
    return f"held-{number}"


def topic_of(number: int) -> str:
    """What that client subscribes to."""
    return f"held/{number}"


def payload_of(message: int) -> bytes:
    """A message that says which it is and when it was sent."""
    return f"{message} {time.monotonic_ns()}".encode().ljust(_PAYLOAD_BYTES)


class SessionLoad:
    """One such process, seen from the one that measures; leaving the block ends it."""

    def __init__(self, first: int, count: int, *, clean: bool) -> None:
        words = [str(first), str(count), "clean" if clean else "lasting"]
        self._words = [sys.executable, "-m", "benchmarks.mqtt_session_load", *words]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, order: dict[str, Any]) -> None:
        """Have it do something; `answer` says what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the order that was given first. SystemExit where it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a process that holds sessions has ended")
        told: dict[str, Any] = json.loads(line)
        return told


class _Client:
    """One client; `lost_s` is when its connection was lost, 0 before that."""

    __slots__ = ("held", "is_open", "lost_s", "number", "place", "socket")

    def __init__(self, number: int, place: int) -> None:
        self.number = number
        self.place = place
        self.socket: socket.socket | None = None
        self.held = b""
        self.is_open = False
        self.lost_s = 0.0


class _Held:
    """All clients of this process."""

    def __init__(self, first: int, count: int, *, clean: bool) -> None:
        self._clean = clean
        self._clients = [_Client(number, number) for number in range(first, first + count)]
        self._places: list[tuple[str, int]] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        self._to_connect: deque[_Client] = deque()
        self._to_retry: deque[tuple[float, _Client]] = deque()
        self._under_way = 0
        self._at_once = _AT_ONCE
        self._is_connecting = False
        self._counts = dict.fromkeys(("open", "lost", "back", "back_with_session", "refused"), 0)
        self._away_s: list[float] = []
        self._last_back_s = 0.0
        self._messages: list[tuple[int, float]] = []

    def run(self) -> None:
        """Obey until the input ends."""
        while True:
            self._connect_more()
            for key, _ in self._selector.select(_LISTEN_S):
                if key.data is None:
                    order = sys.stdin.readline()
                    if not order:
                        return
                    self._obey(json.loads(order))
                elif key.data.socket is not None:
                    self._act(key.data)
            if self._is_connecting and self._counts["open"] == len(self._clients):
                self._is_connecting = False
                _say({"connected": len(self._clients)})

    def _obey(self, order: dict[str, Any]) -> None:
        if order["do"] == "connect":
            places = [place.rpartition(":") for place in order["places"]]
            self._places = [(host, int(port)) for host, _, port in places]
            self._to_connect.extend(self._clients)
            self._is_connecting = True
            return
        if order["do"] == "cut":
            self._at_once = order["at_once"]
            for client in self._clients:
                if client.socket is not None:
                    self._lose(client, moves=order["moves"])
            _say({"cut": len(self._to_connect)})
            return
        _say(
            {
                "counts": self._counts,
                "last_back_s": self._last_back_s,
                "away_s": self._away_s,
                "messages": self._messages,
            }
        )
        self._away_s, self._messages = [], []

    def _connect_more(self) -> None:
        now_s = time.monotonic()
        while self._to_retry and self._to_retry[0][0] <= now_s:
            self._to_connect.append(self._to_retry.popleft()[1])
        while self._to_connect and self._under_way < self._at_once:
            client = self._to_connect.popleft()
            place = self._places[client.place % len(self._places)]
            client.socket = connect_from(source_of(client.number), place, blocks=False)
            client.held = b""
            self._under_way += 1
            self._selector.register(client.socket, selectors.EVENT_WRITE, client)

    def _act(self, client: _Client) -> None:
        connection = client.socket
        assert connection is not None
        if self._selector.get_key(connection).events == selectors.EVENT_WRITE:
            self._begin(client, connection)
            return
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose(client)
            return
        data = client.held + data
        answers = []
        while len(packet := _first_packet(data)):
            data = data[len(packet) :]
            answers.append(self._take(client, packet))
        client.held = data
        if client.socket is not None and (out := b"".join(answers)):
            connection.send(out)

    def _begin(self, client: _Client, connection: socket.socket) -> None:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._lose(client)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.modify(connection, selectors.EVENT_READ, client)
        out = connect_packet(name_of(client.number), clean=self._clean)
        if not client.lost_s or self._clean:
            out += subscribe_packet(topic_of(client.number), 1)
        try:
            connection.send(out)
        except OSError:
            self._lose(client)

    def _take(self, client: _Client, packet: bytes) -> bytes:
        """What is answered to a packet."""
        kind = packet[0] & 0xF0
        is_back = kind == 0x20 and client.lost_s and not self._clean
        if kind == 0x20 and packet[3]:
            self._counts["refused"] += 1
            self._lose(client)
            return b""
        if is_back:
            self._counts["back"] += 1
            self._counts["back_with_session"] += packet[2]
            self._last_back_s = time.monotonic()
            self._away_s.append(self._last_back_s - client.lost_s)
        if is_back or kind == 0x90:
            client.is_open = True
            self._under_way -= 1
            self._counts["open"] += 1
        if kind != 0x30:
            return b""
        place = 1 + _length_bytes(packet)
        place += 2 + int.from_bytes(packet[place : place + 2], "big")
        message, sent_ns = packet[place + 2 :].split()[:2]
        self._messages.append((int(message), (time.monotonic_ns() - int(sent_ns)) / 1e6))
        return b"\x40\x02" + packet[place : place + 2]

    def _lose(self, client: _Client, *, moves: bool = True) -> None:
        """It connects again, to another place if it moves; where it never was let in there, a little later."""
        assert client.socket is not None
        self._selector.unregister(client.socket)
        client.socket.close()
        client.socket = None
        if moves:
            client.place += 1 + client.number % (len(self._places) - 1 or 1)
        if client.is_open:
            client.is_open = False
            client.lost_s = time.monotonic()
            self._counts["open"] -= 1
            self._counts["lost"] += 1
            self._to_connect.append(client)
        else:
            self._under_way -= 1
            self._to_retry.append((time.monotonic() + _RETRY_S, client))


def _length_bytes(packet: bytes) -> int:
    """Bytes of the length in a packet's head."""
    return 1 + (len(packet) > 1 and packet[1] >= 0x80)


def _first_packet(data: bytes) -> bytes:
    """The packet that the bytes begin with; none where it is not whole."""
    head = 1 + _length_bytes(data)
    if len(data) < head:
        return b""
    size = head + (data[1] & 0x7F) + (data[2] << 7 if head == 3 else 0)
    return data[:size] if len(data) >= size else b""


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main() -> int:
    """0 when the input ends."""
    first, count, kind = sys.argv[1:]
    if int(count) > raise_descriptor_limit() - _SPARE_DESCRIPTORS:
        raise SystemExit(f"{count} clients are more than this process may have descriptors")
    # Orders come one line at a time; what is read ahead of the selector would lie in a buffer.
    sys.stdin = os.fdopen(0, "r", buffering=1)
    _Held(int(first), int(count), clean=kind == "clean").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
