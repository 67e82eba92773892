"""A broker's connections to the controllers: heartbeats to each, requests to the leader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from millstream.controller.broker_calls import address_of
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError, Unreachable
from millstream.protocol.remoting.administration.controller_requests import BrokerHeartbeat, ControllerMetadata
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["ANSWER_S", "HEARTBEAT_S", "ControllerLines"]

_log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
"""Seconds between two heartbeats to each controller."""

ANSWER_S: Final = 3.0
"""Seconds in which a controller must answer a request; its log may wait for others as long."""

_BEAT_ANSWER_S: Final = 1.0
_OPEN_S: Final = 1.0
_RETRY: Final = Backoff(0.05, 1.0)


class ControllerLines:
    """`addresses` are `host:port` of all controllers. Calls come from one event loop.

    `on_beat` hears each answer to a heartbeat and when that one was sent, in seconds of the loop's clock.
    """

    def __init__(
        self, addresses: Sequence[str], credentials: Credentials | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.on_beat: Callable[[RemotingCommand, float], None] = lambda _answer, _sent_s: None
        self._lines = {address: _Line(address, credentials, tls) for address in addresses}
        self._credentials = credentials
        self._tls = tls
        self._leader: str | None = None
        self._beating: list[asyncio.Task[None]] = []
        self._early = asyncio.Event()

    def start(self, heartbeat: Callable[[], BrokerHeartbeat]) -> None:
        """Send heartbeats from now on; `heartbeat` says what of."""
        loop = asyncio.get_running_loop()
        self._beating = [
            loop.create_task(self._beat_forever(line, heartbeat), name=f"heartbeats-to-{line.address}")
            for line in self._lines.values()
        ]

    def beat_now(self) -> None:
        """Send the next heartbeats at once."""
        self._early.set()
        asyncio.get_running_loop().call_soon(self._early.clear)

    async def ask(self, command: RemotingCommand, timeout_s: float = ANSWER_S) -> RemotingCommand:
        """The leader's answer, whatever its code. Raises Unreachable, TimedOut; whether it was done is unknown then."""
        failure: MillstreamError = Unreachable("No controller is known.")
        for line in self._candidates():
            try:
                connection = await line.reach()
            except MillstreamError as error:
                failure = error
                continue
            answer = await connection.request(_copy(command), timeout_s)
            if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                self._leader = line.address
                return answer
            self._note_leader(answer)
            failure = Unreachable(f"{line.address} does not lead the controllers.")
        raise failure

    async def tell_all(self, command: RemotingCommand, timeout_s: float) -> None:
        """Send a request to each controller that is connected, and wait for their answers."""
        reached = [line.connection for line in self._lines.values() if line.connection is not None]
        waits = [one.request(_copy(command), timeout_s) for one in reached if one.is_open]
        await asyncio.gather(*waits, return_exceptions=True)

    async def close(self) -> None:
        """Send nothing any more."""
        for task in self._beating:
            task.cancel()
        await asyncio.gather(*self._beating, return_exceptions=True)
        for line in self._lines.values():
            await line.close()

    def _candidates(self) -> Iterator[_Line]:
        """The leader as far as it is known, then the others; who is named as the leader meanwhile comes next."""
        left = dict(self._lines)
        while left:
            address = self._leader if self._leader in left else next(iter(left))
            yield left.pop(address)

    def _note_leader(self, answer: RemotingCommand) -> None:
        named = ControllerMetadata.decode(answer.ext).leader_address
        self._leader = named if named in self._lines else None

    async def _beat_forever(self, line: _Line, heartbeat: Callable[[], BrokerHeartbeat]) -> None:
        loop = asyncio.get_running_loop()
        failed, last_code = 0, int(ResponseCode.SUCCESS)
        while True:
            try:
                connection = await line.reach()
                sent_s = loop.time()
                command = RemotingCommand(RequestCode.BROKER_HEARTBEAT, heartbeat().encode())
                answer = await connection.request(command, _BEAT_ANSWER_S)
                if failed:
                    _log.warning("The controller %s is reached again.", line.address)
                failed = 0
                if answer.code not in (last_code, ResponseCode.SUCCESS):
                    _log.error("The controller %s refuses this broker: %s", line.address, answer.remark)
                last_code = answer.code
                self.on_beat(answer, sent_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._early.wait()
            except MillstreamError as error:
                if not failed:
                    _log.warning("No heartbeat reaches the controller %s: %s", line.address, error)
                failed += 1
                await asyncio.sleep(_RETRY.wait_s(min(failed - 1, 10)))
            except Exception:  # noqa: BLE001 - the task's edge: without heartbeats the controllers take this broker for dead
                if not failed:
                    _log.exception("A heartbeat to the controller %s failed.", line.address)
                failed += 1
                await asyncio.sleep(_RETRY.wait_s(min(failed - 1, 10)))


class _Line:
    """The connection to one controller."""

    def __init__(self, address: str, credentials: Credentials | None, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.connection: RemotingConnection | None = None
        self._credentials = credentials
        self._tls = tls
        self._opening = asyncio.Lock()

    async def reach(self) -> RemotingConnection:
        async with self._opening:
            if self.connection is None or not self.connection.is_open:
                self.connection = await RemotingConnection.open(
                    address_of(self.address), timeout_s=_OPEN_S, credentials=self._credentials, tls=self._tls
                )
            return self.connection

    async def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(MillstreamError):
                await self.connection.close()


def _copy(command: RemotingCommand) -> RemotingCommand:
    """The same request once more: a connection signs and numbers what it sends."""
    return RemotingCommand(command.code, dict(command.ext), command.body)
