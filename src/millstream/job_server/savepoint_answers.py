"""Pending savepoint requests of one driver, matched to its answers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.job_server.driver_messages import SaveJob, SavepointFailed, SavepointWords, SavepointWritten
from millstream.job_server.errors import JobServerError
from millstream.model.errors import MillstreamError

__all__ = ["SAVEPOINT_S", "SavepointAnswers"]

SAVEPOINT_S: Final = 300.0
"""Seconds that a request for a savepoint of a running job waits for its driver at most."""


class SavepointAnswers:
    """Those that are not answered yet. Calls come from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[SavepointWords]] = {}

    async def ask(self, tell: Callable[[SaveJob], None], name: str, target: Path, label: str) -> SavepointWords:
        """Send the order for a job by `tell` and wait for the answer.

        Raises what the driver answers; SAVEPOINT_REFUSED after `SAVEPOINT_S` and where the driver ends.
        """
        id, answer = uuid.uuid4().hex, asyncio.get_running_loop().create_future()
        self._waiting[id] = answer
        tell(SaveJob(id, name, str(target), label))
        try:
            async with asyncio.timeout(SAVEPOINT_S):
                written: SavepointWords = await answer
        except TimeoutError:
            words = f"The driver of {name} has not written the savepoint within {SAVEPOINT_S:.0f} s; it goes on to."
            remedy = f"Look for {target}: it is there once it is whole."
            raise JobServerError("SAVEPOINT_REFUSED", words, remedy=remedy) from None
        finally:
            del self._waiting[id]
        return written

    def hear(self, event: SavepointWritten | SavepointFailed) -> None:
        """The driver answers; an answer that nobody waits for any more is no error."""
        answer = self._waiting.get(event.id)
        if answer is None or answer.done():
            return
        if isinstance(event, SavepointWritten):
            answer.set_result(event.savepoint)
        else:
            failure = event.failure
            answer.set_exception(MillstreamError(failure.code, failure.message, remedy=failure.remedy))

    def end(self) -> None:
        """The driver has ended."""
        for answer in self._waiting.values():
            if not answer.done():
                words = "The driver of the job ended before the savepoint was written."
                answer.set_exception(JobServerError("SAVEPOINT_REFUSED", words, remedy="Try again once the job runs."))
