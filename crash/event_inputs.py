"""Malformed input for the WebSockets and the event streams of the HTTP port."""

from __future__ import annotations

import random
from typing import Final

from crash.attack import InputKind
from crash.attacked_server import AttackedServer
from crash.malformed_input import mutated
from crash.programme import ProgrammeRun
from crash.protocol_inputs import HTTP_PROBE, say, websocket_frame

__all__ = ["STREAM", "EventInputs", "open_socket"]

STREAM: Final = b"GET /v1/topics/orders/stream HTTP/1.1\r\nhost: x\r\n\r\n"
"""Asks for an event stream."""

_COMMANDS: Final = (
    b'{"action":"ack","handles":["x"]}',
    b'{"action":"nack","handles":["0 1795733803953 60000 1 0 broker 0 0 1"],"delay":"10s"}',
    b'{"action":"extend","handles":["x","y"],"invisible":"5m"}',
    b'{"action":"dead-letter","handles":["x"]}',
    b'{"action":"ack","handles":[]}',
    b'{"handles":' + b"[" * 5000,
    b"\xff\xfe",
)
_FIRSTS: Final = (0x81, 0x81, 0x81, 0x81, 0x01, 0x00, 0x80, 0x82, 0x88, 0x89, 0x8A, 0x09, 0xC1, 0x83)
"""The first byte of a frame: text that is whole, most of the time."""

_QUERIES: Final = (
    b"",
    b"?from=earliest",
    b"?from=1@0@x",
    b"?filter=a||b",
    b"?sql=a%20%3D%201",
    b"?from=" + b"9" * 5000,
)


def open_socket(group: str = "x7", query: str = "") -> bytes:
    """The request that opens a WebSocket of a group for the topic orders."""
    return (
        f"GET /v1/groups/{group}/topics/orders/websocket{query} HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n"
        "connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


class EventInputs:
    """The kinds of inputs; behind each a good client is served."""

    def __init__(self, run: ProgrammeRun, server: AttackedServer) -> None:
        self._run = run
        self._server = server
        self.kinds: list[InputKind] = [self._frames, self._handshake, self._stream, self._pipelined]

    async def _frames(self, rng: random.Random) -> None:
        """Commands with faults, in frames with faults, cut at any byte."""
        said = [open_socket()]
        for _ in range(rng.randrange(1, 30)):
            command = rng.choice(_COMMANDS)
            first = rng.choice(_FIRSTS) if rng.random() < 0.5 else 0x81
            said.append(websocket_frame(rng, first, mutated(rng, command) if rng.random() < 0.3 else command))
        if rng.random() < 0.3:
            said[-1] = said[-1][: rng.randrange(len(said[-1]) + 1)]
        await self._say(rng, said)

    async def _handshake(self, rng: random.Random) -> None:
        """A request for a WebSocket that is cut at any byte, or has faults, with frames behind it at once."""
        head = open_socket(query=rng.choice(["", "?max_in_flight=0", "?max_in_flight=1000", "?invisible=1s", "?a=b"]))
        head = head[: rng.randrange(len(head))] if rng.random() < 0.5 else mutated(rng, head)
        await self._say(rng, [head + websocket_frame(rng, 0x81, _COMMANDS[0])])

    async def _stream(self, rng: random.Random) -> None:
        """A request for an event stream with faults, with a body, or with bytes behind it."""
        head = STREAM.replace(b"stream ", b"stream" + rng.choice(_QUERIES) + b" ")
        if rng.random() < 0.3:
            head = head.replace(b"host: x", b"host: x\r\nlast-event-id: " + rng.randbytes(20).hex().encode())
        if rng.random() < 0.5:
            head = mutated(rng, head)
        await self._say(rng, [head, rng.randbytes(rng.randrange(200))])

    async def _pipelined(self, rng: random.Random) -> None:
        """Requests by the thousand behind one that does not end."""
        await self._say(
            rng, [rng.choice([STREAM, open_socket()]), b"GET /health HTTP/1.1\r\n\r\n" * rng.randrange(2000)]
        )

    async def _say(self, rng: random.Random, said: list[bytes]) -> None:
        await say(self._run, rng, self._server.http, said, probe=HTTP_PROBE)
