"""Files of plain numbers or bytes, written sequentially and memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from millstream.store.files import FileLayer
from millstream.streams.errors import DimensionError

__all__ = ["PlaneFact", "PlaneReader", "PlaneWriter", "PlaneWriters", "read_array", "unsigned_width", "written_array"]

_WRITE_BYTES: Final = 256 * 1024
"""Bytes that are gathered for one write."""

_DIGEST_BYTES: Final = 16

_WIDTHS: Final = (1, 2, 4)


def unsigned_width(largest: int) -> int:
    """Bytes of the narrowest unsigned number that holds `largest`; 0 where that is 0."""
    if not largest:
        return 0
    return next((width for width in _WIDTHS if largest < 1 << 8 * width), 8)


class PlaneFact(msgspec.Struct, frozen=True):
    """What a manifest says of one file: its bytes and their BLAKE2b digest."""

    size_bytes: int
    checksum: str


class PlaneWriter:
    """One file under way."""

    def __init__(self, files: FileLayer, path: Path) -> None:
        self._files = files
        self._descriptor: int | None = files.open(path, create=True)
        files.truncate(self._descriptor, 0)
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._waiting = bytearray()
        self._end = 0

    def append(self, content: bytes | memoryview | np.ndarray) -> None:
        """More bytes, or the bytes of numbers."""
        self._waiting += content.tobytes() if isinstance(content, np.ndarray) else content
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._descriptor is not None
        self._files.pwrite(self._descriptor, self._waiting, self._end)
        self._digest.update(self._waiting)
        self._end += len(self._waiting)
        self._waiting = bytearray()

    def finish(self) -> PlaneFact:
        """The file is whole and on the disk."""
        self._write()
        assert self._descriptor is not None
        self._files.fsync(self._descriptor)
        self.close()
        return PlaneFact(self._end, self._digest.hexdigest())

    def close(self) -> None:
        """Close the file, whole or not."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            self._files.close(descriptor)


class PlaneWriters:
    """The files under way of one directory, by name."""

    def __init__(self, files: FileLayer, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._writers: dict[str, PlaneWriter] = {}

    def make(self, name: str) -> PlaneWriter:
        """A new file."""
        writer = self._writers[name] = PlaneWriter(self._files, self._directory / name)
        return writer

    def finish(self) -> dict[str, PlaneFact]:
        """All files are whole, and they and their names are on the disk."""
        facts = {name: writer.finish() for name, writer in self._writers.items()}
        self._files.sync_directory(self._directory)
        return facts

    def close(self) -> None:
        """Close the files, whole or not."""
        for writer in self._writers.values():
            writer.close()


class PlaneReader:
    """Maps the files of one directory; all processes share what of them is in memory.

    What is mapped stays whole when the directory is removed. Raises DIMENSION_DAMAGED where a file is not as the
    manifest says: always by its length, with `check` by its digest.
    """

    def __init__(self, files: FileLayer, directory: Path, facts: Mapping[str, PlaneFact], *, check: bool) -> None:
        self._directory = directory
        self._contents = {name: self._map_file(files, name, fact, check) for name, fact in facts.items()}

    def _map_file(self, files: FileLayer, name: str, fact: PlaneFact, check: bool) -> memoryview:
        try:
            content = files.map_file(self._directory / name)
        except OSError as error:
            raise self._explain_damage(name, f"cannot be read: {error.strerror}") from None
        if len(content) != fact.size_bytes:
            raise self._explain_damage(name, f"has {len(content)} bytes instead of {fact.size_bytes}")
        if check and hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest() != fact.checksum:
            raise self._explain_damage(name, "fails its checksum")
        return content

    def _explain_damage(self, name: str, what: str) -> DimensionError:
        words = f"The file {self._directory / name} of a dimension table {what}."
        return DimensionError("DIMENSION_DAMAGED", words)

    def open(self, name: str, dtype: Any = np.uint8) -> np.ndarray:
        """The numbers of a file, mapped."""
        content = self._contents.get(name)
        if content is None:
            raise self._explain_damage(name, "is not named by the manifest")
        try:
            return np.frombuffer(content, dtype)
        except ValueError as error:
            raise self._explain_damage(name, f"cannot be read: {error}") from None


def written_array(array: pa.Array) -> bytes:
    """A small array as bytes."""
    batch = pa.RecordBatch.from_arrays([array], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def read_array(content: Any) -> pa.Array:
    """The array of which `written_array` made the bytes."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
        return stream.read_next_batch().column(0)
