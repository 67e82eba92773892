"""Which messages were copied into which Parquet files: rows of a broker's state, and what is to be copied next.

A file holds what whole stretches of the log have of one topic. It goes up in two phases as chunks do: a row without
contents names it, the file is put, and the row is written again with what it holds. Its name comes from the stretches,
so whoever goes on after a crash puts the same file, or finds it there.

Pure: no clock, no store, no threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from millstream.tiered.cold_map import ColdMap, ColdStretch
from millstream.tiered.columns.column_work import CopiedFile, CopyPart
from millstream.tiered.objects import ObjectInfo

__all__ = [
    "KEPT_METADATA",
    "MAX_FILE_BYTES",
    "MAX_FILE_PARTS",
    "ColumnFile",
    "ColumnMap",
    "ColumnRow",
    "ColumnTopic",
    "NextFile",
    "data_prefix",
    "next_file",
    "resume_file",
    "table_prefix",
    "tables_prefix",
    "unnamed_files",
]

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of chunks of one Parquet file at most, but for what a single stretch has."""

MAX_FILE_PARTS: Final = 4096
"""Parts of chunks of one Parquet file at most, but for what a single stretch has."""


KEPT_METADATA: Final = 20
"""Versions of a table's own metadata that stay beside the present one."""


class ColumnTopic(msgspec.Struct, frozen=True, tag="topic", tag_field="kind"):
    """How far a topic was copied, and as what."""

    columns: str = ""
    """Those that its files have; blank before any are accepted."""
    body_format: str = ""
    copied_until: int = 0
    """Nothing of the log before it is to be copied, whatever files there are."""
    lost: int = 0
    """Messages that are damaged, of parts of the log of which nothing else was there to be copied."""
    is_deleted: bool = False
    """Whether the topic is gone, so that its table has to go."""


class ColumnFile(msgspec.Struct, frozen=True, tag="file", tag_field="kind"):
    """A Parquet file with what the log from `log_begin` to before `log_end` has of a topic."""

    topic: str
    log_begin: int
    log_end: int
    held: CopiedFile | None = None
    """None before the file is whole in the store."""
    removed_ms: int | None = None
    """Since when no table has it any more, or shall have it; then it is to be deleted."""


ColumnRow = ColumnTopic | ColumnFile


@dataclass(frozen=True, slots=True)
class NextFile:
    """What the next file of a topic is to hold; `key` is its name."""

    key: str
    row: ColumnFile
    parts: tuple[CopyPart, ...]


_DATA_FILE: Final = re.compile(r"[0-9]{20,}-[0-9]{20,}-[0-9A-Za-z]+\.parquet")
"""The name of a file of ours, without what stands before the last slash."""


def tables_prefix(cluster: str) -> str:
    """What the keys of all objects of the copies of a cluster begin with."""
    return f"columns/{cluster}/"


def table_prefix(cluster: str, topic: str) -> str:
    """What the keys of all objects of the copy of a topic begin with."""
    return f"{tables_prefix(cluster)}{topic}/"


def data_prefix(cluster: str, topic: str, broker: str) -> str:
    """What the keys of all Parquet files of a topic of a broker begin with."""
    return f"{table_prefix(cluster, topic)}data/{broker}/"


def _file_key(prefix: str, first: int, end: int, last_stretch: str) -> str:
    # A restored broker may come to the same offsets of the log again with other messages; its stretches differ.
    unique = last_stretch.rpartition("-")[2]
    return f"{prefix}{first:020}-{end:020}-{unique}.parquet"


@dataclass(slots=True)
class ColumnMap:
    """All rows: topics by name, files by key. `apply` is the only change."""

    topics: dict[str, ColumnTopic] = field(default_factory=dict)
    files: dict[str, dict[str, ColumnFile]] = field(default_factory=dict)
    """By topic."""

    def apply(self, key: str, row: ColumnRow | None) -> None:
        """Put the row of that key in the place of the one there was; None: there is none any more."""
        if isinstance(row, ColumnTopic):
            self.topics[key] = row
        elif row is not None:
            self.files.setdefault(row.topic, {})[key] = row
        elif key in self.topics:
            del self.topics[key]
        else:
            for topic, files in self.files.items():
                if files.pop(key, None) is not None:
                    if not files:
                        del self.files[topic]
                    return

    def rows(self) -> dict[str, ColumnRow]:
        """All rows, by key. No topic's name is the key of a file, which has slashes."""
        found: dict[str, ColumnRow] = dict(self.topics)
        for files in self.files.values():
            found.update(files)
        return found

    def present(self, topic: str) -> dict[str, ColumnFile]:
        """The files that are whole and that a table is to hold, by key, in the order of the log."""
        files = self.files.get(topic, {}).items()
        found = [(key, one) for key, one in files if one.held is not None and one.removed_ms is None]
        return dict(sorted(found, key=lambda pair: pair[1].log_begin))

    def find_begun(self, topic: str) -> tuple[str, ColumnFile] | None:
        """The file that was begun and is not known to be whole; one of a topic at a time."""
        files = self.files.get(topic, {}).items()
        return next(((key, one) for key, one in files if one.held is None and one.removed_ms is None), None)

    def copied_until(self, topic: str) -> int:
        """The log offset before which all of the topic was copied, as far as it was cold at all."""
        files = self.files.get(topic, {}).values()
        ends = [one.log_end for one in files if one.held is not None]
        return max(ends, default=0) if topic not in self.topics else max([*ends, self.topics[topic].copied_until])

    def next_offsets(self, topic: str) -> dict[int, int]:
        """By queue number the offset behind the last message that was copied into a file that is there."""
        found: dict[int, int] = {}
        for one in self.present(topic).values():
            assert one.held is not None
            for queue_id, offset in one.held.next_offsets.items():
                found[queue_id] = max(found.get(queue_id, 0), offset)
        return found

    def may_join(self, rows: Sequence[ColdStretch]) -> bool:
        """Whether rows of the cold map that follow one another may become one.

        What is copied next begins behind a whole row, and a file that was begun has whole rows. So a topic that was
        copied as far as between the rows must have nothing behind that place, and one whose file begins or ends
        between them nothing in that file.
        """
        begin, end = rows[0].log_begin, rows[-1].log_end
        topics: dict[int, set[str]] = {}

        def hold(topic: str, first: int, behind: int) -> bool:
            """Whether a row that begins between these offsets of the log has something of the topic."""
            for row in rows:
                if first <= row.log_begin < behind:
                    if row.log_begin not in topics:
                        topics[row.log_begin] = {part.topic for one in row.objects or () for part in one.parts}
                    if topic in topics[row.log_begin]:
                        return True
            return False

        for name in {*self.topics, *self.files}:
            begun = self.find_begun(name)
            if begun is not None:
                first, behind = begun[1].log_begin, begun[1].log_end
                is_cut = begin < first < end or begin < behind < end
                if is_cut and hold(name, first, end):
                    return False
            copied = self.copied_until(name)
            if begin < copied < end and hold(name, copied, end):
                return False
        return True

    def find_expired(self, before_ms: Mapping[str, int], default_ms: int) -> dict[str, ColumnFile]:
        """The files all of whose messages were stored before their topic's time, else `default_ms`, by key."""
        return {
            key: one
            for topic in self.files
            for key, one in self.present(topic).items()
            if one.held is not None and one.held.last_stored_ms < before_ms.get(topic, default_ms)
        }

    def list_removed(self) -> Iterator[tuple[str, ColumnFile, int]]:
        """The files that wait for their deletion, with the time since when."""
        for files in self.files.values():
            for key, one in files.items():
                if one.removed_ms is not None:
                    yield key, one, one.removed_ms


def unnamed_files(
    columns: ColumnMap, found: Iterable[ObjectInfo], cluster: str, broker: str, before_ms: int
) -> dict[str, list[ObjectInfo]]:
    """By topic, of the objects that were found the Parquet files of a broker that no row names, put before that time.

    Whatever is not named as such a file is left alone, and so are files of other brokers, whose rows are theirs.
    """
    unnamed: dict[str, list[ObjectInfo]] = {}
    for info in found:
        topic = info.key.removeprefix(tables_prefix(cluster)).partition("/")[0]
        prefix = data_prefix(cluster, topic, broker)
        is_file = info.key.startswith(prefix) and _DATA_FILE.fullmatch(info.key[len(prefix) :])
        if is_file and info.modified_ms < before_ms and info.key not in columns.files.get(topic, {}):
            unnamed.setdefault(topic, []).append(info)
    return unnamed


def resume_file(cold: ColdMap, key: str, row: ColumnFile) -> NextFile:
    """What a file that was begun is to hold: what is still there of it."""
    stretches = cold.rows_from(row.topic, row.log_begin)
    parts = [part for _, one in stretches if one.log_end <= row.log_end for part in _parts(one, row.topic)]
    return NextFile(key, row, tuple(_in_order(parts)))


def next_file(cold: ColdMap, topic: str, prefix: str, begin: int) -> NextFile | None:
    """The next file of a topic behind that log offset; None where nothing of the topic is cold behind it."""
    taken: list[tuple[str, ColdStretch]] = []
    parts: list[CopyPart] = []
    size_bytes = 0
    for name, one in cold.rows_from(topic, begin):
        own = _parts(one, topic)
        size_bytes += _bytes_of(one, topic)
        if taken and (size_bytes > MAX_FILE_BYTES or len(parts) + len(own) > MAX_FILE_PARTS):
            break
        taken.append((name, one))
        parts += own
    if not taken:
        return None
    first, (last_name, last) = taken[0][1], taken[-1]
    row = ColumnFile(topic, first.log_begin, last.log_end)
    return NextFile(_file_key(prefix, row.log_begin, row.log_end, last_name), row, tuple(_in_order(parts)))


def _parts(row: ColdStretch, topic: str) -> list[CopyPart]:
    return [
        CopyPart(part.queue_id, part.first_queue_offset, part.next_queue_offset, one.key, one.size_bytes)
        for one in row.objects or ()
        for part in one.parts
        if part.topic == topic
    ]


def _bytes_of(row: ColdStretch, topic: str) -> int:
    """Bytes of the objects, shared out by messages where an object has several topics."""
    total = 0
    for one in row.objects or ():
        messages = own = 0
        for part in one.parts:
            count = part.next_queue_offset - part.first_queue_offset
            messages += count
            own += count if part.topic == topic else 0
        total += one.size_bytes * own // max(messages, 1)
    return total


def _in_order(parts: Iterable[CopyPart]) -> list[CopyPart]:
    return sorted(parts, key=lambda part: (part.queue_id, part.first_queue_offset))
