"""One statement of a session, from submission to its last result page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from millstream.gateway.result_pages import ResultPage, ResultPages
from millstream.model.errors import MillstreamError
from millstream.streams.plan.types import DataType

__all__ = ["GatewayOperation", "OperationStatus", "ResultColumn", "StatementResult"]


class OperationStatus(Enum):
    """Flink's states of an operation. It is FINISHED when its result can be fetched, be it endless."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    CLOSED = "CLOSED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class StatementResult:
    """What a statement gives. `has_content` is false where it says no more than that it is done.

    `job_id` has 32 hexadecimal digits, or is None without a job. `stop` ends what runs for the result.
    """

    columns: tuple[ResultColumn, ...]
    pages: ResultPages
    is_query: bool = False
    has_content: bool = True
    job_id: str | None = None
    stop: Callable[[], None] | None = None


class GatewayOperation:
    """Safe to call from any thread. `canceled` is set once nobody wants the result any more."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self.canceled = threading.Event()
        self._lock = threading.Lock()
        self._status = OperationStatus.PENDING
        self._result: StatementResult | None = None
        self._failure: MillstreamError | None = None

    @property
    def status(self) -> OperationStatus:
        """The state as it is now."""
        return self._status

    @property
    def is_spent(self) -> bool:
        """Whether nothing runs for it and its result was fetched, or can be done without: all but that of a SELECT."""
        with self._lock:
            result = self._result
            if self._status in (OperationStatus.PENDING, OperationStatus.RUNNING):
                return False
            return result is None or not result.is_query or result.pages.is_over

    @property
    def result(self) -> StatementResult | None:
        """What the statement gives; None until that is known. Raises what it failed with, GATEWAY_CANCELED."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._status is OperationStatus.CANCELED:
                raise MillstreamError("GATEWAY_CANCELED", f"The operation {self.handle} was canceled.")
            return self._result

    def page(self, result: StatementResult, token: int) -> ResultPage:
        """The page of that token; a job that has failed fails the operation."""
        try:
            return result.pages.page(token)
        except MillstreamError as error:
            if error.name != "GATEWAY_TOKEN":
                self.fail(error)
            raise

    def run(self, statement: Callable[[], StatementResult]) -> None:
        """Run the statement in this thread, unless it was canceled; what it raises is kept."""
        with self._lock:
            if self._status is not OperationStatus.PENDING:
                return
            self._status = OperationStatus.RUNNING
        try:
            result = statement()
        except MillstreamError as error:
            self.fail(error)
            return
        except Exception as error:  # noqa: BLE001 - the edge of the session's thread: it is told to the client
            self.fail(MillstreamError("INTERNAL_ERROR", f"{type(error).__name__}: {error}."))
            return
        with self._lock:
            if self._status is OperationStatus.RUNNING:
                self._status, self._result = OperationStatus.FINISHED, result
                return
        _end(result)

    def fail(self, error: MillstreamError) -> None:
        """The statement, or the job of its result, has failed."""
        with self._lock:
            if self._status in (OperationStatus.PENDING, OperationStatus.RUNNING, OperationStatus.FINISHED):
                self._status, self._failure = OperationStatus.ERROR, error
                result, self._result = self._result, None
            else:
                return
        _end(result)

    def end(self, status: OperationStatus) -> OperationStatus:
        """Cancel or close it, with the job of a SELECT; a job that an INSERT started goes on. The state then."""
        with self._lock:
            self.canceled.set()
            result, self._result = self._result, None
            if status is OperationStatus.CLOSED or self._status not in (
                OperationStatus.ERROR,
                OperationStatus.CLOSED,
            ):
                self._status = status
        _end(result)
        return self._status


def _end(result: StatementResult | None) -> None:
    if result is None:
        return
    result.pages.close()
    if result.stop is not None:
        result.stop()
