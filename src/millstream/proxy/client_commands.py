"""Commands to clients on their open streams: bounded outboxes, and commands that await a reply."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.commands import ServerCommand, size_bytes_of
from millstream.model.errors import ConsumeRefused, MillstreamError, TimedOut

__all__ = [
    "MAX_OPEN_QUESTIONS",
    "MAX_STREAM_BYTES",
    "MAX_TOTAL_BYTES",
    "MAX_WAITING_COMMANDS",
    "Outbox",
    "Outboxes",
    "PendingCommands",
]


MAX_WAITING_COMMANDS = 64
"""Commands that wait for one stream at most."""

MAX_STREAM_BYTES = 8 * 1024 * 1024
"""Bytes of the messages in them at most; one that is alone may be larger."""

MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""The same over all streams."""


@dataclass(slots=True)
class _Total:
    """What waits in all outboxes of a proxy."""

    commands: int = 0
    size_bytes: int = 0


class Outbox:
    """The commands for one stream, oldest first. Whoever writes the stream calls `first`, writes, then `note_sent`."""

    def __init__(self, total: _Total) -> None:
        self._commands: deque[ServerCommand] = deque()
        self._changed = asyncio.Event()
        self._size_bytes = 0
        self._total = total

    def __len__(self) -> int:
        return len(self._commands)

    async def first(self) -> ServerCommand:
        """The command to write next, as soon as there is one. It stays until `note_sent`."""
        while not self._commands:
            self._changed.clear()
            await self._changed.wait()
        return self._commands[0]

    def note_sent(self) -> None:
        """The first command has been written."""
        self._count(-1, -size_bytes_of(self._commands.popleft()))

    def has_room(self, size_bytes: int) -> bool:
        """Whether a command of that size can wait here."""
        if len(self._commands) >= MAX_WAITING_COMMANDS or self._total.size_bytes + size_bytes > MAX_TOTAL_BYTES:
            return False
        return not self._commands or self._size_bytes + size_bytes <= MAX_STREAM_BYTES

    def add(self, command: ServerCommand) -> None:
        """Let the command wait."""
        self._commands.append(command)
        self._count(1, size_bytes_of(command))
        self._changed.set()

    def take_all(self) -> list[ServerCommand]:
        """What was not sent; the outbox is empty then."""
        left = list(self._commands)
        self._count(-len(left), -self._size_bytes)
        self._commands.clear()
        return left

    def _count(self, commands: int, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._total.size_bytes += size_bytes
        self._total.commands += commands


class Outboxes:
    """The outboxes of all clients of one proxy. Every call is from its event loop."""

    def __init__(self, on_left: Callable[[str], None] = lambda _: None) -> None:
        self._streams: dict[str, list[Outbox]] = {}
        self._total = _Total()
        self._on_left = on_left

    def open(self, client_id: str) -> Outbox:
        """The outbox of a stream that the client has just opened."""
        outbox = Outbox(self._total)
        self._streams.setdefault(client_id, []).append(outbox)
        return outbox

    def close(self, client_id: str, outbox: Outbox) -> None:
        """The stream ended. What it did not carry goes to the client's other stream, if there is one with room."""
        streams = self._streams.get(client_id, [])
        if outbox in streams:
            streams.remove(outbox)
        left = outbox.take_all()
        if streams:
            for command in left:
                self.tell(client_id, command)
        else:
            self._streams.pop(client_id, None)
            self._on_left(client_id)

    def tell(self, client_id: str, command: ServerCommand) -> bool:
        """Whether the command waits to be sent now. False: the client has no open stream, or no room is left."""
        streams = self._streams.get(client_id)
        if not streams or not streams[-1].has_room(size_bytes_of(command)):
            return False
        streams[-1].add(command)
        return True

    def is_open(self, client_id: str) -> bool:
        """Whether the client has an open stream."""
        return client_id in self._streams

    def client_ids(self) -> list[str]:
        """The clients with an open stream."""
        return list(self._streams)

    @property
    def waiting(self) -> int:
        """How many commands were not sent yet."""
        return self._total.commands


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
        """A client's answer; an error is raised to the caller. An answer that nobody waits for is passed over."""
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
