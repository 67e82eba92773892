"""The master's port for replicas: long-polling fetches, one session per connection, and timeouts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import FetchRequest
from millstream.replication.source import Fetched, LogSource
from millstream.transport.remoting_connection import Connection

__all__ = ["CONFIRM_DELAY_S", "MAX_SILENCE_S", "FetchPort"]

CONFIRM_DELAY_S: Final = 0.02
"""Seconds after which a replica that waits is told of more that is confirmed, unless records come before."""

MAX_SILENCE_S: Final = 1.5
"""Seconds without a fetch after which the session of a replica is over."""

_MAX_WAIT_S: Final = 1.0


@dataclass(slots=True)
class _Session:
    """One connection of a replica."""

    number: int
    broker_id: int
    connection: Connection
    heard_s: float
    damaged_bytes: int = 0
    waiting: _Waiting | None = None


@dataclass(slots=True)
class _Waiting:
    """A fetch without an answer."""

    command: RemotingCommand
    fetch: FetchRequest
    answer: asyncio.Future[RemotingCommand]
    due: asyncio.TimerHandle


class FetchPort:
    """Answers replicas while there is a source; without one this broker is no master.

    `on_later_epoch` is called where a replica knows of a later one; `on_heard` after each fetch.
    """

    def __init__(self) -> None:
        self.source: LogSource | None = None
        self.on_later_epoch: Callable[[], None] = lambda: None
        self.on_heard: Callable[[], None] = lambda: None
        self.on_doubt: Callable[[int], None] = lambda _log_offset: None
        """Called where a replica got damaged records, with their log offset."""
        self._numbers = itertools.count(1)
        self._sessions: dict[int, _Session] = {}
        self._of_connection: WeakKeyDictionary[Connection, _Session] = WeakKeyDictionary()
        self._wake_is_due = False
        self._confirming: asyncio.TimerHandle | None = None

    @property
    def replicas(self) -> dict[int, str]:
        """The replicas that have a session, and where they come from."""
        return {
            one.broker_id: f"{one.connection.peer.host}:{one.connection.peer.port}" for one in self._sessions.values()
        }

    def damaged_bytes_of(self, broker_id: int) -> int:
        """What the replica said last of the damage in its log; 0 without a session."""
        return max((one.damaged_bytes for one in self._sessions.values() if one.broker_id == broker_id), default=0)

    def open(self, source: LogSource) -> None:
        """Answer from this source; sessions of an earlier one are closed."""
        self.close()
        self.source = source

    def close(self) -> None:
        """Be no master any more: fetches that wait are refused and their connections closed."""
        self.source = None
        for session in list(self._sessions.values()):
            self._end_waiting(session)
            session.connection.close()
        self._sessions.clear()
        self._of_connection.clear()
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None

    def fetch(
        self, command: RemotingCommand, connection: Connection
    ) -> RemotingCommand | asyncio.Future[RemotingCommand]:
        """The handler of code 9120."""
        fetch = FetchRequest.decode(command.ext)
        source = self.source
        if source is None:
            raise ConnectionFailed("NOT_MASTER", "This broker is not the master of its set.")
        if fetch.is_doubtful:
            self.on_doubt(fetch.log_offset)
        now_s = _now_s()
        session = self._of_connection.get(connection)
        number = next(self._numbers) if session is None else session.number
        try:
            fetched, replaced = source.take(number, fetch, now_s)
        except BaseException as error:
            if session is None:
                # Nobody would end it with the connection.
                source.close_session(number, fetch.broker_id, now_s)
            is_fenced = isinstance(error, NameRefused) and error.name == "FENCED_MASTER_EPOCH"
            if is_fenced and fetch.epoch > source.sync_set.epoch:
                self.on_later_epoch()
            raise
        if replaced is not None and replaced != number:
            self._drop(replaced)
        if session is None:
            session = self._begin(number, fetch.broker_id, connection, now_s)
        session.heard_s, session.damaged_bytes = now_s, fetch.damaged_bytes
        self._end_waiting(session)
        self.on_heard()
        if fetched is not None:
            return _response(command, fetched)
        return self._wait(session, command, fetch)

    def wake_soon(self) -> None:
        """There may be something to send: those who wait are looked at in the next turn."""
        if not self._wake_is_due and self._sessions:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def note_confirmed(self) -> None:
        """More is confirmed; who waits hears it a little later."""
        if self._confirming is None and self._sessions:
            self._confirming = asyncio.get_running_loop().call_later(CONFIRM_DELAY_S, self._confirm)

    def close_silent(self) -> None:
        """End the sessions of replicas that are not heard any more."""
        limit_s = _now_s() - MAX_SILENCE_S
        for session in list(self._sessions.values()):
            if session.waiting is None and session.heard_s < limit_s:
                self._drop(session.number)

    # inside

    def _begin(self, number: int, broker_id: int, connection: Connection, now_s: float) -> _Session:
        session = _Session(number, broker_id, connection, now_s)
        self._sessions[number] = session
        self._of_connection[connection] = session
        connection.on_close.append(lambda _: self._end(number))
        return session

    def _drop(self, number: int) -> None:
        session = self._sessions.get(number)
        if session is not None:
            self._end(number)
            session.connection.abort()

    def _end(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is None:
            return
        self._of_connection.pop(session.connection, None)
        self._end_waiting(session)
        if self.source is not None:
            self.source.close_session(number, session.broker_id, _now_s())
            self.on_heard()

    def _wait(
        self, session: _Session, command: RemotingCommand, fetch: FetchRequest
    ) -> asyncio.Future[RemotingCommand]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[RemotingCommand] = loop.create_future()
        wait_s = min(fetch.wait_ms / 1000, _MAX_WAIT_S)
        due = loop.call_later(wait_s, self._answer, session, True)
        session.waiting = _Waiting(command, fetch, answer, due)
        if self.source is not None and self.source.owes_confirmation(fetch):
            self.note_confirmed()
        return answer

    def _wake(self) -> None:
        self._wake_is_due = False
        for session in list(self._sessions.values()):
            self._answer(session)

    def release_leavers(self) -> None:
        """Answer the replicas that stop and are out of the set."""
        if self.source is None:
            return
        required = self.source.sync_set.required
        for session in list(self._sessions.values()):
            waiting = session.waiting
            if waiting is not None and waiting.fetch.is_leaving and session.broker_id not in required:
                self._answer(session, is_due=True)

    def _confirm(self) -> None:
        self._confirming = None
        for session in list(self._sessions.values()):
            waiting = session.waiting
            if self.source is not None and waiting is not None and self.source.owes_confirmation(waiting.fetch):
                self._answer(session, is_due=True)

    def _answer(self, session: _Session, is_due: bool = False) -> None:
        waiting, source = session.waiting, self.source
        if waiting is None or source is None or waiting.answer.done():
            return
        try:
            fetched = source.answer(session.number, waiting.fetch, is_due=is_due)
        except (MillstreamError, OSError) as error:
            session.waiting = None
            waiting.due.cancel()
            waiting.answer.set_exception(error)
            return
        if fetched is not None:
            session.waiting = None
            session.heard_s = _now_s()
            waiting.due.cancel()
            waiting.answer.set_result(_response(waiting.command, fetched))

    def _end_waiting(self, session: _Session) -> None:
        waiting, session.waiting = session.waiting, None
        if waiting is not None:
            waiting.due.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(ConnectionFailed("NOT_MASTER", "This session is over."))


def _response(command: RemotingCommand, fetched: Fetched) -> RemotingCommand:
    return command.response(ext=fetched.fields.encode(), body_parts=(fetched.body,) if fetched.body else ())


def _now_s() -> float:
    return asyncio.get_running_loop().time()
