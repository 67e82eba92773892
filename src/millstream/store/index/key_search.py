"""Answers a key query from index runs and from log ranges that no run covers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from millstream.model.errors import StoreError
from millstream.store.commit_log import CommitLog
from millstream.store.files import FileLayer
from millstream.store.index.log_stretch import LogStretch
from millstream.store.index.record_keys import keys_of, whole_record
from millstream.store.index.run import KeyRun, key_hash, stored_seconds

__all__ = ["KeyQuery", "KeySearch", "Part"]

Part = KeyRun | LogStretch

_MAX_RESTARTS = 16
"""Times that a search begins again because files went away under it, by a merge or by retention."""


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """What is asked for: records of the topic with the key, stored from `begin_ms` to `end_ms`, both included.

    `start` and `end` are the log offsets between which they begin.
    """

    topic: str
    topic_bytes: bytes
    key: bytes
    begin_ms: int
    end_ms: int
    start: int
    end: int


class KeySearch:
    """Searches the parts that `parts` gives, oldest first, which may be others at each call. Fit for any thread."""

    def __init__(
        self,
        log: CommitLog,
        files: FileLayer,
        parts: Callable[[], tuple[Part, ...]],
        counts: Callable[[str, int], bool],
        rest: Callable[[], None],
    ) -> None:
        self._log = log
        self._files = files
        self._parts = parts
        self._counts = counts
        self._rest = rest

    def run(self, query: KeyQuery, limit: int) -> list[int]:
        """The log offsets of at most `limit` records, newest first. Each was there and whole a moment ago."""
        for _ in range(_MAX_RESTARTS):
            with suppress(FileNotFoundError):
                return list(islice(self._find(query), limit))
        return list(islice(self._find(query), limit))

    def _find(self, query: KeyQuery) -> Iterator[int]:
        last = query.end
        for log_offset in self._candidates(query):
            # A record comes twice if it has the key twice, or if a run was found damaged halfway through.
            if query.start <= log_offset < last:
                last = log_offset
                if self._counts(query.topic, log_offset) and self._fits(query, log_offset):
                    yield log_offset

    def _fits(self, query: KeyQuery, log_offset: int) -> bool:
        record = whole_record(self._log, log_offset)
        if record is None:
            return False
        _, _, stored_ms, topic, text = record
        is_in_time = query.begin_ms <= stored_ms <= query.end_ms
        return is_in_time and topic == query.topic_bytes and query.key in keys_of(text)

    def _candidates(self, query: KeyQuery) -> Iterator[int]:
        parts = self._parts()
        for part in reversed(parts):
            if isinstance(part, LogStretch):
                yield from part.candidates(query.topic_bytes, query.key, query.end)
            elif part.span.begin_ms <= query.end_ms and query.begin_ms <= part.span.end_ms:
                yield from self._of_run(part, query, parts)

    def _of_run(self, run: KeyRun, query: KeyQuery, parts: tuple[Part, ...]) -> Iterator[int]:
        earliest, latest = stored_seconds(query.begin_ms), stored_seconds(query.end_ms)
        try:
            if not run.is_damaged:
                with run.open_reader(self._files) as reader:
                    for log_offset, stored_s in reader.newest(key_hash(query.topic_bytes, query.key)):
                        if earliest <= stored_s <= latest:
                            yield log_offset
                return
        except (StoreError, OSError) as error:
            if isinstance(error, FileNotFoundError) and parts is not self._parts():
                raise
            run.is_damaged = True
        stretch = LogStretch(self._log, run.span.begin, run.span.end, self._rest)
        yield from stretch.candidates(query.topic_bytes, query.key, query.end)
