"""Followed files as an input of a gateway: reads pieces, and saves positions after acknowledgements."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from millstream.ingest.event_batch import EventBatch
from millstream.ingest.files.positions import PositionBook, PositionsDocument
from millstream.ingest.files.tail import Piece
from millstream.ingest.files.watch import FileWatch, WatchOptions
from millstream.ingest.topic_writer import InputStatistics, TopicWriter
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.model.outside_text import clean_text

__all__ = ["CUT_PROPERTY", "FILE_PROPERTY", "SAVE_S", "FileInput", "FileOptions", "Oversized"]

SAVE_S: Final = 0.1
"""Seconds between two saves of offsets at least; a kill repeats what was acknowledged since the last one."""

_POLL_S: Final = 0.2
"""Seconds between two looks whether the files have grown."""

FILE_PROPERTY: Final = "file"
"""The property that names the file of an event."""

CUT_PROPERTY: Final = "cut-from-bytes"
"""The property of an event that was cut: how long it was."""


class Oversized(Enum):
    """What becomes of a line over the limit."""

    CUT = "cut"
    DEAD_LETTER = "dead-letter"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What is followed, where the positions are kept, and whether to end at the end of the files."""

    watch: WatchOptions
    directory: Path
    once: bool = False
    oversized: Oversized = Oversized.CUT
    poll_s: float = field(default=_POLL_S)


class FileInput:
    """Follows files until it is stopped, or (`once`) to their ends; StartRefused where positions cannot be kept."""

    name = "file"

    def __init__(
        self, options: FileOptions, outlet: TopicWriter, tally: InputStatistics, say: Callable[[str], None]
    ) -> None:
        self.outlet = outlet
        self.tally = tally
        self._options = options
        self._say = say
        self._book: PositionBook | None = None
        self._watch: FileWatch | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last: asyncio.Future[None] | None = None
        """The acknowledgement of what was put last: all before it is acknowledged, too."""
        self._next_save_s = 0.0
        self._using_watch = threading.Lock()
        """A stop may find a thread that still reads."""
        self._saved: PositionsDocument | None = None

    async def start(self) -> Mapping[str, Address]:
        """Read the positions and begin. INGEST_SOURCE where there is no file and none is waited for."""
        self._book = PositionBook(self._options.directory)
        self._watch = FileWatch(self._options.watch, self._book.read, time.monotonic, self._say)
        if not self._watch.find():
            words = f"No file matches {' or '.join(self._options.watch.patterns)}."
            if self._options.once:
                raise StartRefused("INGEST_SOURCE", words, remedy="Correct the path or pattern.")
            self._say(f"{words} It is waited for.")
        self._task = asyncio.get_running_loop().create_task(self._run(self._book, self._watch))
        return {}

    async def wait(self) -> None:
        """Return at the end of the files, once all is acknowledged; without `once` never."""
        assert self._task is not None
        # Whoever gives up waiting does not end the reading.
        await asyncio.wait({self._task})
        self._task.result()

    async def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=0.5)
            self._task.cancel()
            await asyncio.wait({self._task})

    def reload_certificate(self) -> None:
        """Files have none."""

    async def finish(self) -> None:
        """Save the positions and let go of the files."""
        if self._book is not None and self._watch is not None:
            self._save(self._book, self._watch)
            with self._using_watch:
                self._watch.close()
            self._book.close()

    # inside

    async def _run(self, book: PositionBook, watch: FileWatch) -> None:
        while not self._stopping.is_set():
            pieces = await asyncio.to_thread(self._turn, watch)
            self.tally.unreadable = watch.unreadable
            if not pieces and watch.is_at_end and self._options.once:
                await self._put(watch.end())
                break
            await self._put(pieces)
            # In turn with the reading, so that the files are as they are while positions are taken.
            if time.monotonic() >= self._next_save_s:
                await asyncio.to_thread(self._save, book, watch)
                self._next_save_s = time.monotonic() + SAVE_S
            if not pieces:
                self.tally.unread_bytes = watch.unread_bytes()
                await self._pause()
        if self._last is not None:
            await asyncio.wait({self._last})

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._options.poll_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _put(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            for event_batch in self._make_batches(piece):
                self._last = await self.outlet.put(event_batch)
            if self._last is None:
                piece.settle()
            else:
                # Also where it holds no events: those before it have to be acknowledged first.
                self._last.add_done_callback(partial(_settle, piece))

    def _make_batches(self, piece: Piece) -> list[EventBatch]:
        events, shared = piece.events, {FILE_PROPERTY: clean_text(str(piece.path))}
        bodies = events.bodies
        if not bodies:
            return []
        self.tally.taken += len(bodies)
        self.tally.taken_bytes += sum(map(len, bodies))
        self.tally.cut += len(events.whole)
        own = {place: {CUT_PROPERTY: str(size)} for place, size in events.whole.items()}
        if not own or self._options.oversized is Oversized.CUT:
            return [EventBatch(bodies, shared, own)]
        kept = [body for place, body in enumerate(bodies) if place not in own]
        event_batches = [EventBatch(kept, shared)] if kept else []
        if self._options.oversized is Oversized.DROP:
            self.tally.dropped += len(own)
            return event_batches
        long = [bodies[place] for place in own]
        return [*event_batches, EventBatch(long, shared, dict(enumerate(own.values())), dead=True)]

    def _turn(self, watch: FileWatch) -> list[Piece]:
        with self._using_watch:
            return watch.turn()

    def _save(self, book: PositionBook, watch: FileWatch) -> None:
        try:
            with self._using_watch:
                positions = watch.positions()
            if positions != self._saved:
                book.save(positions)
                self._saved = positions
        except OSError as error:
            raise StartRefused(
                "INGEST_POSITIONS", f"The positions cannot be written: {error.strerror or error}."
            ) from None


def _settle(piece: Piece, done: asyncio.Future[None]) -> None:
    # A refusal settles as well: the broker has taken all that it ever will.
    if not done.cancelled():
        piece.settle()
