"""The client side of remoting: one connection, many requests in flight, responses matched by opaque."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, cast

from millstream.model.errors import ConnectionFailed, MillstreamError, NotConnected, Refused, TimedOut, Unreachable
from millstream.model.message import Address
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.protocol.remoting.frame import (
    MAX_ANSWER_HEADER_BYTES,
    MAX_HEADER_BYTES,
    FrameDecoder,
    encode_frame,
    written_parts,
)
from millstream.security.signature import Credentials
from millstream.transport.awaited_answers import AwaitedAnswers
from millstream.transport.signing import sign_command

__all__ = ["SILENCE_S", "WRITE_HIGH_WATER_BYTES", "Listener", "RemotingConnection"]


Listener = Callable[[RemotingCommand], "Awaitable[RemotingCommand | None] | RemotingCommand | None"]
"""Answers a request that the server sends on its own, at once or later; None answers nothing, as to oneway requests."""

WRITE_HIGH_WATER_BYTES: Final = 8 * 1024 * 1024
"""Unsent bytes over which `request` waits before it sends."""

SILENCE_S: Final = 1.0
"""Seconds of silence at least that end a connection; requests with less time say nothing about the server."""

_RECEIVE_BYTES: Final = 64 * 1024
"""Bytes that are read at a time, but for large bodies."""

_DISCARD: Final = struct.pack("ii", 1, 0)
"""The system is to forget what it has not sent when the connection is closed."""


class RemotingConnection(asyncio.BufferedProtocol):
    """A connection to one server. It is not opened again once it is closed; its owner opens another one.

    It closes itself where a request's time is over and the server has answered nothing since: one that vanished says
    no goodbye, and what was sent to it would be sent again for minutes before the system gave it up.
    """

    def __init__(self, address: Address, credentials: Credentials | None = None) -> None:
        self.address = address
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(max_header_bytes=MAX_ANSWER_HEADER_BYTES)
        self._receiving = memoryview(bytearray(_RECEIVE_BYTES))
        self._answers = AwaitedAnswers()
        self._answers.on_silence = self._silent
        self.listener: Listener | None = None
        """Asked for the server's own requests; without one they are refused."""
        self.on_close: list[Callable[[], None]] = []
        """Called once the connection is gone."""
        self._outgoing: list[bytes | memoryview] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._failure: MillstreamError | None = None
        self._answering: set[asyncio.Future[RemotingCommand | None]] = set()

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        timeout_s: float = 3.0,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        listener: Listener | None = None,
    ) -> RemotingConnection:
        """A connection to `address`, whose requests `credentials` sign; NotConnected where nothing answers in time.

        `server_name` is what the certificate must be for, where that is not the address's host.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    lambda: cls(address, credentials),
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=server_name if tls is not None else None,
                )
        except TimeoutError:
            raise NotConnected(f"{address.host}:{address.port} does not answer within {timeout_s:g} s.") from None
        except OSError as error:
            # The number of a TLS error is none of the system's.
            is_system = error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError)
            reason = os.strerror(error.errno or 0) if is_system else str(error)
            raise NotConnected(f"{address.host}:{address.port} cannot be reached: {reason}.") from None
        connection.listener = listener
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._failure is None and self._transport is not None and not self._transport.is_closing()

    async def request(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer to `command`, whatever its code. Raises TimedOut, Unreachable, PROTOCOL_VIOLATION.

        REQUEST_TOO_LARGE for what the server would close the connection for, on which others' requests wait.
        """
        if not self._writable.is_set():
            await self._wait_until_writable(timeout_s)
        return await self.submit(command, timeout_s)

    def submit(self, command: RemotingCommand, timeout_s: float) -> asyncio.Future[RemotingCommand]:
        """Send `command` at the end of this turn; its answer is the future's result. Never waits for room."""
        if not self.is_open:
            future: asyncio.Future[RemotingCommand] = self._loop.create_future()
            future.set_exception(self._unusable_error())
            return future
        if self._credentials is not None:
            sign_command(command, self._credentials)
        answer = self._answers.expect(command, self.address, timeout_s)
        try:
            self._send(command)
        except MillstreamError as error:
            self._answers.refuse(command, error)
        return answer

    def notify(self, command: RemotingCommand) -> None:
        """Send a request that nobody answers, at the end of this turn; nothing where the connection is gone."""
        if not self.is_open:
            return
        command.flag |= FLAG_ONEWAY
        if self._credentials is not None:
            sign_command(command, self._credentials)
        self._send(command)

    async def close(self) -> None:
        """Close; requests under way fail as Unreachable."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but are no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.room() or self._receiving

    def buffer_updated(self, nbytes: int) -> None:
        if self._decoder.room() is not None:
            self._decoder.note_filled(nbytes)
            return
        try:
            for command in self._decoder.feed(self._receiving[:nbytes]):
                self._receive(command)
        except ConnectionFailed as error:
            self._failure = ConnectionFailed(
                error.name, f"{self.address.host}:{self.address.port} does not speak remoting: {error.message}"
            )
            assert self._transport is not None
            self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        failure = self._failure
        self._failure = failure or self._closed_error()
        self._writable.set()
        self._outgoing.clear()
        self._answers.fail(failure or self._closed_error())
        for listener in self.on_close:
            listener()
        self.on_close.clear()

    # inside

    def _receive(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._answers.deliver(command)
            return
        answer = self.listener(command) if self.listener is not None else _unknown(command)
        if isinstance(answer, Awaitable):
            work = asyncio.ensure_future(answer)
            self._answering.add(work)
            work.add_done_callback(partial(self._send_answer, command))
        elif answer is not None and not command.is_oneway:
            self._send(answer)

    def _send_answer(self, command: RemotingCommand, work: asyncio.Future[RemotingCommand | None]) -> None:
        self._answering.discard(work)
        if work.cancelled():
            return
        error = work.exception()
        answer = work.result() if error is None else command.response(ResponseCode.SYSTEM_ERROR, remark=str(error))
        if answer is not None and not command.is_oneway and self.is_open:
            self._send(answer)

    def _send(self, command: RemotingCommand) -> None:
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += _frame(command)

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            for part in written_parts(self._outgoing):
                self._transport.write(part)
        self._outgoing.clear()

    async def _wait_until_writable(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._writable.wait()
        except TimeoutError:
            raise TimedOut(f"{self.address.host}:{self.address.port} took no request within {timeout_s:g} s.") from None

    def _silent(self, seconds: float) -> None:
        if seconds >= SILENCE_S and self._failure is None and self._transport is not None:
            self._failure = Unreachable(f"{self.address.host}:{self.address.port} answers nothing for {seconds:g} s.")
            # What is still under way must not arrive after what a later connection brings.
            lingering = self._transport.get_extra_info("socket")
            lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
            self._transport.abort()

    def _unusable_error(self) -> MillstreamError:
        """Why no request can be sent: none was."""
        failure = self._failure or self._closed_error()
        return NotConnected(failure.message) if isinstance(failure, Unreachable) else failure

    def _closed_error(self) -> Unreachable:
        return Unreachable(f"{self.address.host}:{self.address.port} closed the connection.")


def _frame(command: RemotingCommand) -> list[bytes | memoryview]:
    try:
        parts = encode_frame(command)
    except (ValueError, UnicodeEncodeError) as error:
        raise Refused("REQUEST_TOO_LARGE", f"The request of code {command.code} cannot be sent: {error}.") from None
    if len(parts[0]) > MAX_HEADER_BYTES and not command.is_response:
        raise Refused(
            "REQUEST_TOO_LARGE",
            f"The fields of the request of code {command.code} have {len(parts[0])} bytes; {MAX_HEADER_BYTES} fit.",
        )
    return parts


def _unknown(command: RemotingCommand) -> RemotingCommand:
    return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="Not known to this client.")
