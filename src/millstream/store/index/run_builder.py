"""Making a run from a part of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from millstream.store.commit_log import CommitLog
from millstream.store.files import FileLayer
from millstream.store.index.record_keys import RecordWalk, keys_of
from millstream.store.index.run import ENTRY, KeyRun, RunSpan, stored_seconds, topic_seed
from millstream.store.index.run_writer import RunWriter

__all__ = ["MAX_BUILT_ENTRIES", "build_run"]

MAX_BUILT_ENTRIES = 262_144
"""Entries after which a run ends before its part of the log does; bounds the memory of building one."""

_RECORDS_BETWEEN_RESTS = 256
_ENTRIES_BETWEEN_RESTS = 2048
_BUCKETS = 256

_NO_TIMES = (2**63 - 1, -(2**63))
"""Begin and end ms of a run without records: no time lies between them, and a merge takes those of the others."""


class _Gathered(NamedTuple):
    """The entries of a part of the log in buckets by the first byte of their hash.

    Sorting each bucket alone costs less than sorting all and never holds the interpreter for long.
    """

    buckets: list[list[bytes]]
    span: RunSpan


def build_run(
    log: CommitLog, begin: int, end: int, directory: Path, files: FileLayer, rest: Callable[[], None]
) -> KeyRun:
    """The run over the log from `begin`, where a record starts, to `end`, or less if there are very many keys.

    The last record may reach beyond `end`. `rest` is called now and then, to let other threads in. The run is on the
    disk when this returns; errors of the disk are OSError and leave nothing behind.
    """
    buckets, span = _gather(log, begin, end, rest)
    writer = RunWriter(directory, span.begin, span.end, files)
    try:
        entries_since_rest = 0
        for bucket in buckets:
            bucket.sort()
            writer.add(b"".join(bucket))
            entries_since_rest += len(bucket)
            bucket.clear()
            if entries_since_rest >= _ENTRIES_BETWEEN_RESTS:
                entries_since_rest = 0
                rest()
        return writer.finish(span)
    except OSError:
        writer.abandon()
        raise


def _gather(log: CommitLog, begin: int, end: int, rest: Callable[[], None]) -> _Gathered:
    buckets: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    walk = RecordWalk(log, begin, end)
    begin_ms, end_ms = _NO_TIMES
    stored_s, last_ms, seed, last_topic = 0, None, 0, None
    entries, records_since_rest, pack = 0, 0, ENTRY.pack
    for records in walk.pieces():
        for log_offset, size, stored_ms, topic, text in records:
            if stored_ms != last_ms:
                begin_ms, end_ms = min(begin_ms, stored_ms), max(end_ms, stored_ms)
                stored_s, last_ms = stored_seconds(stored_ms), stored_ms
            if topic != last_topic:
                seed, last_topic = topic_seed(topic), topic
            keys = keys_of(text)
            for key in keys:
                found = crc32(key, seed)
                buckets[found >> 24].append(pack(found, log_offset, stored_s))
            entries += len(keys)
            if entries >= MAX_BUILT_ENTRIES:
                return _Gathered(buckets, RunSpan(begin, log_offset + size, begin_ms, end_ms))
        records_since_rest += len(records)
        if records_since_rest >= _RECORDS_BETWEEN_RESTS:
            records_since_rest = 0
            rest()
    return _Gathered(buckets, RunSpan(begin, walk.position, begin_ms, end_ms))
