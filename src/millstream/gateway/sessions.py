"""The sessions of a gateway: each has its own tables and settings, and runs one statement at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from millstream.gateway.operations import GatewayOperation, OperationStatus
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["IDLE_S", "MAX_OPERATIONS", "MAX_SESSIONS", "GatewaySession", "SessionBook"]

MAX_SESSIONS: Final = 100
"""Sessions of a gateway at the same time at most; each has a thread."""

MAX_OPERATIONS: Final = 100
"""Operations of a session at most that are not closed; beyond them the oldest one goes that is done and fetched."""

IDLE_S: Final = 1_800.0
"""Seconds without a request or heartbeat after which a session is closed."""


@dataclass(slots=True)
class GatewaySession:
    """One session. `sql` is used by its own thread alone, but for completion and its settings.

    `inert` are properties that a client gave and that do nothing here. `open_set` are the INSERTs of a statement set
    whose END has not come; None outside of one.
    """

    handle: str
    name: str
    sql: SqlSession
    seen_s: float
    inert: dict[str, str] = field(default_factory=dict)
    open_set: list[str] | None = None
    operations: dict[str, GatewayOperation] = field(default_factory=dict)
    worker: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"sql-gateway-{self.handle[:8]}")

    def operation(self, handle: str) -> GatewayOperation:
        """An operation that is not closed. Raises GATEWAY_OPERATION_NOT_FOUND."""
        found = self.operations.get(handle)
        if found is None:
            message = f"The session has no operation {handle[:64]!r}."
            raise MillstreamError("GATEWAY_OPERATION_NOT_FOUND", message)
        return found

    def begin(self) -> GatewayOperation:
        """A new operation. Raises GATEWAY_FULL."""
        if len(self.operations) >= MAX_OPERATIONS:
            # Some clients never close what they have fetched.
            spent = next((one.handle for one in list(self.operations.values()) if one.is_spent), None)
            if spent is not None:
                self.close_operation(spent)
        if len(self.operations) >= MAX_OPERATIONS:
            raise MillstreamError("GATEWAY_FULL", f"The session has {MAX_OPERATIONS} operations that are not closed.")
        operation = GatewayOperation(str(uuid.uuid4()))
        self.operations[operation.handle] = operation
        return operation

    def close_operation(self, handle: str) -> OperationStatus:
        """End an operation and forget it. Raises GATEWAY_OPERATION_NOT_FOUND."""
        operation = self.operation(handle)
        self.operations.pop(handle, None)
        return operation.end(OperationStatus.CLOSED)

    def close(self) -> None:
        """End its SELECTs and what waits; jobs of INSERTs go on."""
        for operation in list(self.operations.values()):
            operation.end(OperationStatus.CLOSED)
        self.operations.clear()
        self.worker.shutdown(wait=False, cancel_futures=True)


class SessionBook:
    """Knows the sessions by their handles. Safe to call from any thread."""

    def __init__(self, make: Callable[[], SqlSession], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, GatewaySession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, name: str) -> GatewaySession:
        """A new session. Raises GATEWAY_FULL."""
        session = GatewaySession(str(uuid.uuid4()), name, self._make(), self._clock.monotonic_s())
        with self._lock:
            if len(self._sessions) >= MAX_SESSIONS:
                raise MillstreamError("GATEWAY_FULL", f"The gateway has {MAX_SESSIONS} sessions.")
            self._sessions[session.handle] = session
        return session

    def find(self, handle: str) -> GatewaySession:
        """The session, which is not idle then. Raises GATEWAY_SESSION_NOT_FOUND."""
        with self._lock:
            session = self._sessions.get(handle)
            if session is None:
                raise MillstreamError("GATEWAY_SESSION_NOT_FOUND", f"There is no session {handle[:64]!r}.")
            session.seen_s = self._clock.monotonic_s()
            return session

    def close(self, handle: str) -> None:
        """End a session. Raises GATEWAY_SESSION_NOT_FOUND."""
        session = self.find(handle)
        with self._lock:
            self._sessions.pop(handle, None)
        session.close()

    def close_idle(self) -> list[str]:
        """End the sessions that nobody has used for `IDLE_S`; their handles."""
        before_s = self._clock.monotonic_s() - IDLE_S
        with self._lock:
            idle = [session for session in self._sessions.values() if session.seen_s < before_s]
            for session in idle:
                del self._sessions[session.handle]
        for session in idle:
            session.close()
        return [session.handle for session in idle]

    def close_all(self) -> None:
        """End all sessions."""
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            session.close()
