"""What the server has to say to clients and has not said yet: one outbox for each open stream, bounded by all means.

A command goes to the stream that the client opened last. Older ones are often dead connections that nobody has noticed
yet. It stays in the outbox until it is written, so that it can move to another stream if its own one breaks on the way;
a client may thus hear a command twice. Where there is no stream or no room the command is refused, and nothing else is
given up for it: whoever has something to say says it again later, or fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from millstream.model.commands import ServerCommand, size_bytes_of

__all__ = ["MAX_STREAM_BYTES", "MAX_TOTAL_BYTES", "MAX_WAITING_COMMANDS", "Outbox", "Outboxes"]

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
