"""Merges neighbouring runs, in small steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer
from millstream.store.index.run import BLOCK_ENTRIES, ENTRY_BYTES, KeyRun, RunReader, RunSpan
from millstream.store.index.run_writer import RunWriter

__all__ = ["RunMerge"]

_BUFFERED_BLOCKS = 4
"""Blocks of each run in memory at least; bounds how long one step holds the interpreter."""


class _Source:
    """The entries of one run that are not merged yet; `buffer` has the next ones, each as its bytes."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._next_block = 0
        self.buffer: list[bytes] = []

    @property
    def is_read(self) -> bool:
        return self._next_block == self._reader.run.blocks

    def fill(self) -> None:
        try:
            while len(self.buffer) < _BUFFERED_BLOCKS * BLOCK_ENTRIES and not self.is_read:
                block = self._reader.block(self._next_block)
                self.buffer += [block[at : at + ENTRY_BYTES] for at in range(0, len(block), ENTRY_BYTES)]
                self._next_block += 1
        except (StoreError, OSError):
            self._reader.run.is_damaged = True
            raise

    def take(self, last: bytes | None) -> list[bytes]:
        """The entries up to `last`, or all of them."""
        count = len(self.buffer) if last is None else bisect_right(self.buffer, last)
        merged = self.buffer[:count]
        del self.buffer[:count]
        return merged


@contextmanager
def _open_run(run: KeyRun, files: FileLayer) -> Iterator[RunReader]:
    try:
        with run.open_reader(files) as reader:
            yield reader
    except FileNotFoundError as error:
        run.is_damaged = True
        raise StoreError("RECORD_DAMAGED", f"The key index file {run.path} is missing.") from error


class RunMerge:
    """The merge of runs that follow one another without a gap. They stay valid until the new run is on the disk.

    A damaged run is marked as such and raises RECORD_DAMAGED, errors of the disk are OSError; then `abandon` ends it.
    """

    def __init__(self, runs: Sequence[KeyRun], directory: Path, files: FileLayer) -> None:
        self.runs = tuple(runs)
        spans = [run.span for run in runs]
        self._span = RunSpan(
            begin=spans[0].begin,
            end=spans[-1].end,
            begin_ms=min(span.begin_ms for span in spans),
            end_ms=max(span.end_ms for span in spans),
            level=max(span.level for span in spans) + 1,
        )
        with ExitStack() as opened:
            self._sources = [_Source(opened.enter_context(_open_run(run, files))) for run in runs]
            self._writer = RunWriter(directory, self._span.begin, self._span.end, files)
            self._opened = opened.pop_all()

    def advance(self) -> int:
        """Merge some entries; how many, 0 at the end."""
        for source in self._sources:
            source.fill()
        unread = [source.buffer[-1] for source in self._sources if not source.is_read]
        last = min(unread) if unread else None
        merged = [entry for source in self._sources for entry in source.take(last)]
        merged.sort()
        self._writer.add(b"".join(merged))
        return len(merged)

    def finish(self) -> KeyRun:
        """The merged run, which is on the disk when this returns."""
        run = self._writer.finish(self._span)
        self._opened.close()
        return run

    def abandon(self) -> None:
        """Let the runs be as they are."""
        self._opened.close()
        self._writer.abandon()
