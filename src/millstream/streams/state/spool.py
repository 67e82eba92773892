"""Spools: files that workers leave for the driver, which collects them at the end of a micro-batch.

A spool file is the magic `MSS1`, then its records, each behind its length (4 bytes, big-endian) as msgpack.

Atomicity: a file is written under a name that begins with a dot and gets its own name when it is complete. Who reads,
also after a worker was killed, finds all of a file's records or no file.

Names: the writer names a file. A name that says which piece of work the records come from (a slice, a bucket and a
micro-batch) makes a retried task, a second pass over the same rows and a replayed micro-batch replace the file instead
of adding one, so nothing counts twice. Where several attempts of a task may run at one time and the driver hears which
of them counts, the name says the attempt, and the driver reads that file alone.

Removal: `take` removes a file once the caller is through with its records and asks for the next one. A caller that
fails leaves the rest, of which a replay sends the file under way again. `clear` removes whatever is there: a query
calls it before its first micro-batch, since what an earlier query left belongs to a micro-batch that is read again.

Durability: none beyond the process. Files are not synced; what a machine's crash takes, the replay writes again.

Limits: a record is smaller than 4 GiB in msgpack. Writer and reader hold one record in memory at a time.

Files without the magic come from another version of Millstream: `take` and `peek` pass over them, `take` removes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path
from struct import Struct
from typing import Final, Generic, TypeVar

import msgspec

from millstream.streams.errors import JobError

__all__ = ["Spool", "SpoolFile"]

T = TypeVar("T")

_MAGIC: Final = b"MSS1"
_LENGTH: Final = Struct(">I")


@dataclass(frozen=True, slots=True)
class Spool(Generic[T]):
    """Files with records of one type. Safe to pickle; several spools with their own suffixes may share a directory."""

    directory: Path
    """Where the files are; made by the first writer."""

    suffix: str
    """How the names of the files end, with the dot: `.late`."""

    record: type[T]
    """What a file holds: any type that msgspec decodes."""

    def put(self, name: str, records: Iterable[T]) -> None:
        """Leave the records in the file called `name`, in place of one of that name. No records, no file."""
        file = self.file(name)
        for record in records:
            file.add(record)
        file.finish()

    def file(self, name: str) -> SpoolFile[T]:
        """A file to be called `name` that is written record by record. A slash in the name becomes an underscore."""
        return SpoolFile(self.directory / f"{name.replace('/', '_')}{self.suffix}")

    def take(self) -> Iterator[T]:
        """The records of all files by name; each file is removed when its last record was used.

        Raises JobError CHECKPOINT_DAMAGED for a file that cannot be read, which stays.
        """
        for path in self._paths():
            yield from self._read_if_present(path)
            path.unlink(missing_ok=True)

    def peek(self) -> Iterator[T]:
        """As `take`, but the files stay."""
        for path in self._paths():
            yield from self._read_if_present(path)

    def read(self, path: Path) -> Iterator[T]:
        """The records of one file, which stays; for a file that a worker has named to the driver.

        Raises FileNotFoundError, and JobError CHECKPOINT_DAMAGED, also for a file of another version.
        """
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise _explain_damage(path)
            yield from self._records(file, path)

    def clear(self) -> None:
        """Remove all files, also unfinished ones. No worker may write meanwhile."""
        for path in (*self._paths(), *self.directory.glob(f".*{self.suffix}.*")):
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        """The complete files, in a fixed order."""
        return sorted(self.directory.glob(f"[!.]*{self.suffix}"))

    def _read_if_present(self, path: Path) -> Iterator[T]:
        """The records of a file; none of another version's file, nor of one that somebody has removed."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        with file:
            if file.read(len(_MAGIC)) == _MAGIC:
                yield from self._records(file, path)

    def _records(self, file: BufferedReader, path: Path) -> Iterator[T]:
        decoder = msgspec.msgpack.Decoder(self.record)
        while length := file.read(_LENGTH.size):
            if len(length) < _LENGTH.size:
                raise _explain_damage(path)
            (size,) = _LENGTH.unpack(length)
            try:
                record = decoder.decode(file.read(size))
            except msgspec.MsgspecError as error:
                raise _explain_damage(path) from error
            yield record


class SpoolFile(Generic[T]):
    """A spool file while it is written; there is none before the first record, and nobody sees it before `finish`.

    For one writer. Raises OSError where the disk fails.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        self._out: BufferedWriter | None = None
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, record: T) -> None:
        """Write one record."""
        text = self._encode(record)
        if self._out is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._out = self._unfinished.open("wb")
            self._out.write(_MAGIC)
        self._out.write(_LENGTH.pack(len(text)))
        self._out.write(text)

    def finish(self) -> Path | None:
        """The file, which is complete; None where no record was added."""
        if self._out is None:
            return None
        self._out.close()
        self._out = None
        return self._unfinished.replace(self._path)


def _explain_damage(path: Path) -> JobError:
    return JobError("CHECKPOINT_DAMAGED", f"The spool file {path} is damaged.")
