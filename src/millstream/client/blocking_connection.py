"""One blocking connection to a server: a request, then its answer."""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import Final

from millstream.model.errors import ConnectionFailed, TimedOut, Unreachable
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.frame import MAX_ANSWER_HEADER_BYTES, FrameDecoder, encode_frame
from millstream.security.signature import Credentials
from millstream.transport.signing import sign

__all__ = ["BlockingConnection"]

_RECEIVE_BYTES: Final = 256 * 1024
_OPAQUE_LIMIT: Final = 0x7FFF_FFFF


class BlockingConnection:
    """A connection to `host:port`. After any error it is closed and of no more use."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect; Unreachable where nothing answers in time. `credentials` sign the requests."""
        self._address = address
        self._credentials = credentials
        self._decoder = FrameDecoder(max_header_bytes=MAX_ANSWER_HEADER_BYTES)
        self._opaque = 0
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host.strip("[]"))
        except TimeoutError:
            raise Unreachable(f"{address} does not answer within {timeout_s:g} s.") from None
        except OSError as error:
            raise Unreachable(f"{address} cannot be reached: {error.strerror or error}.") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_open(self) -> bool:
        """Whether it can be used: not closed, and nothing unasked has arrived, such as the server's close."""
        if self._socket.fileno() < 0:
            return False
        poller = select.poll()  # Not select(), which refuses descriptors of 1,024 and more.
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer to `command`, whatever its code. Raises TimedOut, Unreachable, PROTOCOL_VIOLATION."""
        deadline_s = time.monotonic() + timeout_s
        command.opaque = self._opaque = (self._opaque + 1) & _OPAQUE_LIMIT
        if self._credentials is not None:
            sign(command, self._credentials)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(b"".join(encode_frame(command)))
            while True:
                for received in self._decoder.feed(self._receive(deadline_s)):
                    if received.is_response and received.opaque == command.opaque:
                        return received
        except TimeoutError:
            self.close()
            raise TimedOut(f"{self._address} did not answer within {timeout_s:g} s.") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"{self._address} closed the connection: {error.strerror or error}.") from None
        except ConnectionFailed as error:
            self.close()
            raise ConnectionFailed(error.name, f"{self._address} does not speak remoting: {error.message}") from None

    def close(self) -> None:
        """Close; in a forked child this leaves the parent's connection as it is."""
        self._socket.close()

    def _receive(self, deadline_s: float) -> bytes:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)
        data = self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the server ended it")
        return data
