"""Questions that clients answer on their streams, each known by its nonce."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.commands import ServerCommand
from millstream.model.errors import ConsumeRefused, MillstreamError, TimedOut
from millstream.proxy.outbox import Outboxes

__all__ = ["MAX_OPEN_QUESTIONS", "PendingCommands"]

MAX_OPEN_QUESTIONS = 1000
"""Questions that wait for an answer at most, over all clients."""


@dataclass(frozen=True, slots=True)
class _Open:
    client_id: str
    answer: asyncio.Future[object]


class PendingCommands:
    """Asks clients through their outboxes. Every call is from one event loop."""

    def __init__(self, outboxes: Outboxes) -> None:
        self._outboxes = outboxes
        self._open: dict[str, _Open] = {}

    async def ask(self, client_id: str, command_of: Callable[[str], ServerCommand], timeout_s: float) -> object:
        """What the client answers to the command that `command_of` makes of a nonce.

        Raises CLIENT_NOT_CONNECTED, also if its last stream ends before the answer, TOO_MANY_REQUESTS, TIMED_OUT, and
        what the client refuses with.
        """
        if len(self._open) >= MAX_OPEN_QUESTIONS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{len(self._open)} questions to clients wait for their answers.")
        if not self._outboxes.is_open(client_id):
            raise _not_connected(client_id)
        nonce = uuid.uuid4().hex
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._open[nonce] = _Open(client_id, answer)
        try:
            if not self._outboxes.tell(client_id, command_of(nonce)):
                raise ConsumeRefused("TOO_MANY_REQUESTS", f"Too much waits for the client {client_id} to read it.")
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise TimedOut(f"The client {client_id} did not answer within {timeout_s:g} s.") from None
        finally:
            del self._open[nonce]

    def note_answer(self, client_id: str, nonce: str, answer: object | MillstreamError) -> None:
        """A client's answer; an error is raised to whoever asked. An answer that nobody waits for is passed over."""
        question = self._open.get(nonce)
        if question is None or question.client_id != client_id or question.answer.done():
            return
        if isinstance(answer, MillstreamError):
            question.answer.set_exception(answer)
        else:
            question.answer.set_result(answer)

    def client_left(self, client_id: str) -> None:
        """The client's last stream ended: its questions have no answer."""
        for question in self._open.values():
            if question.client_id == client_id and not question.answer.done():
                question.answer.set_exception(_not_connected(client_id))


def _not_connected(client_id: str) -> ConsumeRefused:
    return ConsumeRefused("CLIENT_NOT_CONNECTED", f"The client {client_id[:200]} has no open stream here.")
