"""Chooses the generation of a compacted queue to use after a crash or disk damage.

Fit is a generation that is whole and whose end the log still reaches. The newest fit one is taken; without any, the
newest that can be read in part: what it lacks is named when it is read. A damaged index is made again from the data.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from millstream.protocol.changelog import KeyOf
from millstream.protocol.checksum import crc32
from millstream.protocol.record import (
    MIN_RECORD_BYTES,
    outline_record,
    possible_records,
    split_record,
    verify_record,
)
from millstream.store.compaction.generation import Generation, map_file
from millstream.store.compaction.header import GenerationHeader, encode_header, load_header
from millstream.store.compaction.row import ROW, ROW_BYTES, key_hash
from millstream.store.consume_queue import tags_code
from millstream.store.files import FileLayer

__all__ = ["CURRENT", "GenerationRecovery", "generation_directory"]

CURRENT = "current"
"""The file that names the generation in use by a copy of its header."""

_DAMAGED_SUFFIX = ".damaged"
_NAME_DIGITS = 10
_NAME = re.compile(rf"\d{{{_NAME_DIGITS}}}")
_SIZE_BYTES = 4

_log = logging.getLogger(__name__)


def generation_directory(directory: Path, number: int) -> Path:
    """Where the generation of that number is."""
    return directory / f"{number:0{_NAME_DIGITS}}"


class GenerationRecovery:
    """One start of one compacted queue. `log_min_offset` is the first queue offset that the log still has."""

    def __init__(
        self, topic: str, queue_id: int, directory: Path, files: FileLayer, key_of: KeyOf, log_min_offset: int
    ) -> None:
        self._identity = (topic, queue_id)
        self._directory = directory
        self._files = files
        self._key_of = key_of
        self._log_min_offset = log_min_offset

    def run(self) -> tuple[Generation | None, int]:
        """The generation to go on with, or None, and the highest number that was ever seen.

        Directories that a crash left unfinished and those of earlier generations are removed; what is damaged stays
        under another name. Raises STORE_FORMAT, with nothing touched, for files of a newer release.
        """
        paths = [path for path in self._files.entries(self._directory) if _NAME.fullmatch(path.name)]
        named = load_header(self._directory / CURRENT, self._files)
        headers = {path: self._header(path, named) for path in paths}
        chosen = self._choose([(path, header) for path, header in reversed(headers.items()) if header is not None])
        number = chosen.header.number if chosen is not None else 0
        if named is not None and named.number > number:
            self._name_loss(named, chosen)
        elif named is None and chosen is not None:
            _log.warning("%s does not name a generation; %d is taken", self._directory / CURRENT, number)
        highest = max([number, named.number if named is not None else 0, *self._numbers()])
        self._clear(headers, number)
        if chosen is not None and named != chosen.header:
            self._files.replace(self._directory / CURRENT, encode_header(chosen.header))
        return chosen, highest

    def _numbers(self) -> Iterator[int]:
        for path in self._files.entries(self._directory):
            if _NAME.match(path.name):
                yield int(path.name[:_NAME_DIGITS])

    def _header(self, path: Path, named: GenerationHeader | None) -> GenerationHeader | None:
        header = load_header(path / "header", self._files)
        if header is None and named is not None and named.number == int(path.name):
            header = named
        if header is None or (header.topic, header.queue_id) != self._identity or header.number != int(path.name):
            return None
        return header

    def _choose(self, candidates: list[tuple[Path, GenerationHeader]]) -> Generation | None:
        in_part = None
        for path, header in candidates:
            generation = Generation.open(path, header, self._files) or self._rebuilt(path, header)
            is_whole = generation.has_all_data and generation.header.rows == header.rows
            if is_whole and header.end_offset >= self._log_min_offset:
                return generation
            if in_part is None and (is_whole or len(generation.data)):
                in_part = generation
            _log.error("Generation %s is damaged, or the log no longer reaches its end", path)
        return in_part

    def _rebuilt(self, path: Path, header: GenerationHeader) -> Generation:
        """The generation with an index made again from those records of its data that are whole."""
        data = map_file(path / "data", self._files)
        rows, marks = bytearray(), header.written_at_ms
        for position, record in _whole_records(data):
            outline, parts = outline_record(record), split_record(record)
            key = self._key_of(parts)
            if (outline.topic, outline.queue_id) != self._identity or key is None:
                continue
            # Since when a tombstone is kept is not known any more; the later time keeps it longer.
            marked_ms = 0 if len(parts.body) else marks
            rows += ROW.pack(
                outline.queue_offset, position, len(record), tags_code(outline.tag), marked_ms, key_hash(key)
            )
        return self._with_index(path, header, data, bytes(rows))

    def _with_index(self, path: Path, header: GenerationHeader, data: memoryview, rows: bytes) -> Generation:
        renewed = msgspec.structs.replace(header, rows=len(rows) // ROW_BYTES, index_crc=crc32(rows))
        _log.error(
            "The index of generation %s is damaged and made again: %d of %d records", path, renewed.rows, header.rows
        )
        if rows:
            self._files.replace(path / "index", rows)
            self._files.replace(path / "header", encode_header(renewed))
        return Generation(renewed, memoryview(rows), data)

    def _name_loss(self, named: GenerationHeader, chosen: Generation | None) -> None:
        _log.error(
            "The compacted queue %s/%d lost its generation %d with the queue offsets up to %d; it goes on with %s",
            named.topic, named.queue_id, named.number, named.end_offset,
            f"generation {chosen.header.number}" if chosen is not None else "what the log still has",
        )  # fmt: skip

    def _clear(self, headers: dict[Path, GenerationHeader | None], number: int) -> None:
        for path, header in headers.items():
            if int(path.name) == number:
                continue
            with contextlib.suppress(OSError):
                if int(path.name) < number or (header is None and not self._files.exists(path / "header")):
                    self._files.remove_tree(path)
                else:
                    self._files.rename(path, path.with_name(path.name + _DAMAGED_SUFFIX))
                    self._files.sync_directory(self._directory)


def _whole_records(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The records that are whole, and where they stand; over damage to the next one."""
    position = 0
    while position + MIN_RECORD_BYTES <= len(data):
        size_bytes = int.from_bytes(data[position : position + _SIZE_BYTES], "big")
        record = data[position : position + size_bytes]
        if verify_record(record):
            yield position, record
            position += size_bytes
            continue
        position = next(possible_records(data, position + 1), len(data))
