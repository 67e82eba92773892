"""Whether a connection speaks HTTP/2, as gRPC clients do, told by its first bytes, which stay where they are.

In plaintext HTTP/2 begins with `PRI * HTTP/2.0`; a frame of remoting that began with that letter would have more than
1 GiB. In TLS the client's hello offers the protocol `h2` (RFC 7301), which remoting clients never do.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S

__all__ = ["MAX_HELLO_BYTES", "offers_http2", "speaks_http2"]

MAX_HELLO_BYTES: Final = 16 * 1024 + 5
"""Bytes of a TLS record at most, which is as much of a client's hello as is looked at."""

_FIRST_LETTER: Final = b"P"
_RECORD_HEADER_BYTES: Final = 5
_SESSION_ID: Final = 4 + 2 + 32
"""Where in a hello the length of the session id is: behind its type and length, the version and the random."""
_ALPN: Final = 16
_PAUSE_S: Final = 0.005


async def speaks_http2(connection: socket.socket, is_tls: bool) -> bool:
    """Look at a connection on which something has arrived. TimeoutError where the hello does not come to its end."""
    if not is_tls:
        return connection.recv(1, socket.MSG_PEEK) == _FIRST_LETTER
    async with asyncio.timeout(HANDSHAKE_LIMIT_S):
        while True:
            seen = connection.recv(MAX_HELLO_BYTES, socket.MSG_PEEK)
            if not seen:
                raise ConnectionResetError("closed within its hello")
            if len(seen) >= _RECORD_HEADER_BYTES:
                end = _RECORD_HEADER_BYTES + int.from_bytes(seen[3:5])
                if len(seen) >= min(end, MAX_HELLO_BYTES):
                    return offers_http2(seen[_RECORD_HEADER_BYTES:end])
            # The socket counts as readable all the while, so there is nothing to wait for but time.
            await asyncio.sleep(_PAUSE_S)


def offers_http2(hello: bytes) -> bool:
    """Whether a client's hello, without the record's header, offers `h2`; False for what is none."""
    place = _behind(hello, _SESSION_ID, 1)
    place = _behind(hello, place, 2)  # cipher suites
    place = _behind(hello, place, 1) + 2  # compression methods, length of the extensions
    while place + 4 <= len(hello):
        kind, size = int.from_bytes(hello[place : place + 2]), int.from_bytes(hello[place + 2 : place + 4])
        if kind == _ALPN:
            return _names(hello[place + 6 : place + 4 + size], b"h2")
        place += 4 + size
    return False


def _behind(data: bytes, place: int, length_bytes: int) -> int:
    """Where the field ends whose length is at `place`."""
    return place + length_bytes + int.from_bytes(data[place : place + length_bytes])


def _names(offered: bytes, wanted: bytes) -> bool:
    place = 0
    while place < len(offered):
        end = place + 1 + offered[place]
        if offered[place + 1 : end] == wanted:
            return True
        place = end
    return False
