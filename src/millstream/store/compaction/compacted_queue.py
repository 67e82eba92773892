"""One compacted queue: its current generation, switched by compaction while reads go on.

current       the header of the generation in use, replaced in one step
0000000001/   a generation: header, index, data

Queue offsets below `end_offset` are read from the generation, those from there on from the ordinary queue. `end_offset`
never goes back while the process runs, and the log may forget what lies below it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from millstream.model.errors import StoreError
from millstream.store.compaction.compaction import Assignment, Compaction, CompactionOptions
from millstream.store.compaction.generation import Generation
from millstream.store.compaction.generation_recovery import CURRENT, GenerationRecovery, generation_directory
from millstream.store.compaction.header import GenerationHeader, encode_header
from millstream.store.compaction.pace import STEP_RECORDS, CompactionPace
from millstream.store.compaction.source import QueueSource
from millstream.store.consume_queue import IndexEntry
from millstream.store.files import FileLayer

__all__ = ["DUE_RATIO", "MIN_DUE_RECORDS", "CompactedQueue"]

MIN_DUE_RECORDS = 1000
"""Records behind the generation that make a compaction due at least; fewer are not worth a rewrite."""

DUE_RATIO = 0.5
"""Records behind the generation, as a share of its rows, that make a compaction due: writes grow at most threefold."""

_STEP_RECORDS = 4096
"""Of a compaction that does not pause."""

_log = logging.getLogger(__name__)


class CompactedQueue:
    """The files of one compacted queue. Readers are fit for any thread; one compaction runs at a time.

    Errors of the disk are `OSError`. `topic` must be fit to name a directory, as `QueueTable` checks.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        files: FileLayer,
        options: CompactionOptions | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self._files = files
        self._options = options or CompactionOptions()
        self._mutex = threading.Lock()
        self._header: GenerationHeader | None = None
        self._generation: Generation | None = None
        self._number = 0
        self._compaction: Compaction | None = None

    def recover(self, log_min_offset: int) -> None:
        """Take up what is on the disk. `log_min_offset`: the first queue offset that the log still has.

        Damage costs what is damaged and is named in the log. Raises STORE_FORMAT for files of a newer release.
        """
        recovery = GenerationRecovery(
            self.topic, self.queue_id, self.directory, self._files, self._options.key_of, log_min_offset
        )
        self._generation, self._number = recovery.run()
        self._header = self._generation.header if self._generation is not None else None

    @property
    def header(self) -> GenerationHeader | None:
        """What the generation in use covers; None before the first compaction."""
        return self._header

    @property
    def end_offset(self) -> int:
        """Up to which queue offset the log is not needed any more; 0 before the first compaction.

        After a start the queue's next offset must not lie below it.
        """
        return self._header.end_offset if self._header is not None else 0

    def min_offset(self, source: QueueSource) -> int:
        """The first offset that a reader may ask for."""
        return self._header.min_offset if self._header is not None else source.min_offset()

    def generation(self) -> Generation | None:
        """The generation in use, for as long as the caller holds it. Raises RECORD_DAMAGED if its files are gone."""
        with self._mutex:
            header = self._header
            if self._generation is None and header is not None:
                directory = generation_directory(self.directory, header.number)
                self._generation = Generation.open(directory, header, self._files)
                if self._generation is None:
                    raise StoreError("RECORD_DAMAGED", f"The generation {directory} was damaged while in use.")
            return self._generation

    def release(self) -> None:
        """Let go of the mapped files until they are read again; who holds the generation keeps it."""
        with self._mutex:
            self._generation = None

    def entries(self, queue_offset: int, max_count: int, source: QueueSource) -> list[IndexEntry]:
        """At most `max_count` entries at or behind the queue offset, from the generation and then from the log.

        Offsets without a record are passed over.
        """
        while True:
            generation = self.generation()
            entries: list[IndexEntry] = []
            end_offset = 0
            if generation is not None:
                end_offset = generation.header.end_offset
                entries = generation.entries(queue_offset, max_count) if queue_offset < end_offset else []
            if len(entries) < max_count:
                entries += source.entries(max(queue_offset, end_offset), max_count - len(entries))
            # After a switch the log may have forgotten what this generation does not have.
            if self._header is (generation.header if generation is not None else None):
                return entries

    def is_due(self, end_offset: int, now_ms: int) -> bool:
        """Whether a compaction up to `end_offset` is worth its work: for new records or for old tombstones."""
        header = self._header
        if header is None:
            return end_offset >= MIN_DUE_RECORDS
        if header.oldest_mark_ms and now_ms - header.oldest_mark_ms >= self._options.tombstone_retention_ms:
            return True
        return end_offset - header.end_offset >= max(MIN_DUE_RECORDS, int(header.rows * DUE_RATIO))

    def begin_compaction(self, source: QueueSource, end_queue_offset: int, now_ms: int) -> Compaction:
        """A compaction of everything below `end_queue_offset`, to be stepped. One at a time (ValueError).

        The offset must lie at or below what is on the disk: a crash must not give it to another record afterwards.
        """
        if self._compaction is not None and not self._compaction.is_over:
            raise ValueError(f"{self.topic}/{self.queue_id} is being compacted already")
        self._number += 1
        directory = generation_directory(self.directory, self._number)
        assignment = Assignment(
            self._number, self.topic, self.queue_id, directory, self.generation(), end_queue_offset, now_ms
        )
        self._compaction = Compaction(assignment, source, self._options, self._files, self._switch)
        return self._compaction

    def compact(
        self, source: QueueSource, end_queue_offset: int, now_ms: int, pace: CompactionPace | None = None
    ) -> GenerationHeader | None:
        """Run a whole compaction; the header of the new generation, None if it was abandoned. For a thread.

        With a pace it pauses after small steps, until so much has come that the next compaction is due at its end.
        """
        compaction = self.begin_compaction(source, end_queue_offset, now_ms)
        enough = max(MIN_DUE_RECORDS, int(self._rows * DUE_RATIO), compaction.end_offset - self.end_offset)
        while not compaction.step(STEP_RECORDS if pace is not None else _STEP_RECORDS):
            if pace is not None:
                if source.end_offset() - compaction.end_offset < enough:
                    pace.rest()
                else:
                    # Slower than the records come: what lies behind it would grow for ever.
                    pace = None
        return compaction.header

    @property
    def _rows(self) -> int:
        header = self._header
        return header.rows if header is not None else 0

    def _switch(self, header: GenerationHeader) -> None:
        generation = Generation.open(generation_directory(self.directory, header.number), header, self._files)
        if generation is None:
            raise StoreError("RECORD_DAMAGED", f"The generation {header.number} in {self.directory} is damaged.")
        self._files.replace(self.directory / CURRENT, encode_header(header))
        with self._mutex:
            self._header, self._generation = header, generation
        for path in self._files.entries(self.directory):
            if path.name.isdigit() and int(path.name) < header.number:
                try:
                    self._files.remove_tree(path)
                except OSError as error:
                    _log.warning("The generation %s stays until the next start: %s", path, error)

    def remove(self) -> None:
        """Stop a compaction after its step, and remove the files. Generations that are held stay readable."""
        if self._compaction is not None:
            self._compaction.abandon()
        with self._mutex:
            self._header = self._generation = None
        self._files.remove_tree(self.directory)
