"""The replica's connection to its master: fetches until the master changes or the log must be truncated."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Final

from millstream.controller.broker_calls import address_of
from millstream.model.backoff import Backoff
from millstream.model.errors import MillstreamError, StoreError
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import FetchAnswer
from millstream.protocol.remoting.refusals import error_of
from millstream.replication.follower import WAIT_MS, Follower, NextStep, Step
from millstream.replication.sync_set import ReplicaAck
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["FollowerTask"]

_log = logging.getLogger(__name__)

_OPEN_S: Final = 1.0
_ANSWER_S: Final = WAIT_MS / 1000 + 2.0
_RETRY: Final = Backoff(0.02, 1.0)
_MAX_ATTEMPT: Final = 10
_ASIDE_S: Final = 1.0


class FollowerTask:
    """Runs once. `on_trouble` is called when the master cannot be followed for now."""

    def __init__(
        self,
        follower: Follower,
        address: str,
        acks: ReplicaAck,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        on_trouble: Callable[[MillstreamError], None],
    ) -> None:
        self.follower = follower
        self.address = address
        self._acks = acks
        self._credentials = credentials
        self._tls = tls
        self._on_trouble = on_trouble

    async def run(self, flush: Callable[[], None]) -> Step:
        """Follow until there is something else to do than to fetch. `flush` brings the log to the disk."""
        failed = 0
        while True:
            try:
                connection = await RemotingConnection.open(
                    address_of(self.address), timeout_s=_OPEN_S, credentials=self._credentials, tls=self._tls
                )
                try:
                    while (step := await self._fetch(connection)).next is NextStep.FETCH:
                        failed = 0
                        self.follower.is_doubtful = False
                        if self._acks is ReplicaAck.FLUSHED:
                            await asyncio.to_thread(flush)
                    return step
                finally:
                    await connection.close()
            except (MillstreamError, ValueError) as error:
                trouble = error if isinstance(error, MillstreamError) else _bad_answer(error)
                # Its log may be damaged without its knowledge: it does not look at the checksums of what it sends.
                self.follower.is_doubtful |= trouble.name == "RECORD_DAMAGED"
                if not failed:
                    _log.warning("The master at %s is not followed for now: %s", self.address, trouble)
                if isinstance(error, StoreError):
                    await self._step_aside()
                self._on_trouble(trouble)
                await asyncio.sleep(_RETRY.wait_s(min(failed, _MAX_ATTEMPT)))
                failed += 1

    async def _step_aside(self) -> None:
        """The disk does not take the log: the master need not wait for this replica until it does."""
        with contextlib.suppress(MillstreamError):
            await self.leave()
        await asyncio.sleep(_ASIDE_S)

    async def leave(self) -> None:
        """Say that this replica stops; returns when the master goes on without it. Raises Unreachable, TimedOut."""
        connection = await RemotingConnection.open(
            address_of(self.address), timeout_s=_OPEN_S, credentials=self._credentials, tls=self._tls
        )
        try:
            fetch = self.follower.fetch(is_leaving=True)
            await connection.request(RemotingCommand(RequestCode.FETCH_LOG, fetch.encode()), _ANSWER_S)
        finally:
            await connection.close()

    async def _fetch(self, connection: RemotingConnection) -> Step:
        command = RemotingCommand(RequestCode.FETCH_LOG, self.follower.fetch().encode())
        answer = await connection.request(command, _ANSWER_S)
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, self.address)
        return self.follower.take(FetchAnswer.decode(answer.ext), answer.body)


def _bad_answer(error: ValueError) -> MillstreamError:
    return MillstreamError("PROTOCOL_VIOLATION", f"The master's answer cannot be used: {error}.")
