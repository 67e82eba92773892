"""The versions of one dimension table on a machine: immutable directories, one of them current."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from millstream.store.files import SharedFiles
from millstream.streams.dimension.manifest import TableManifest
from millstream.streams.errors import DimensionError
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.file_locks import FileLock, hold_lock
from millstream.streams.state.version_store import VersionedDirectories

__all__ = [
    "MAX_VERSIONS",
    "LoadFailure",
    "Loaded",
    "ReloadRequest",
    "TableNote",
    "TableVersion",
    "VersionLease",
    "VersionStore",
    "WholeLoad",
    "copy_version",
]


class ReloadRequest:
    """The newest wish for the table in `directory`. A version whose load began after it has granted it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "reload"

    def request(self, time_ms: int) -> None:
        """Wish for a version that is loaded from now on. Raises OSError."""
        write_file(self._path, b"%d" % time_ms)

    def time_ms(self) -> int | None:
        """When that was; None where nobody ever wished."""
        try:
            text = self._path.read_text()
        except OSError:
            return None
        return int(text) if text.isdigit() else None


def copy_version(held: VersionLease, store: VersionStore, copies: Path) -> Path:
    """The version's copy, made by the first process that asks for it; files that another copy has are linked to it.

    Copies of versions that are gone are removed. Raises OSError.
    """
    copies = copies / store.directory.name
    copy = copies / f"{held.head.version}-{held.head.id}"
    if copy.exists():
        return copy
    copies.mkdir(parents=True, exist_ok=True)
    with hold_lock(copies / ".lock"):
        if not copy.exists():
            unfinished = copies / f".{copy.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            known = {file: path for other in _others(copies) for file, path in _files(other)}
            wanted = {held.directory / name: known.get((name, said)) for (name, said), _ in _files(held.directory)}
            shutil.copytree(held.directory, unfinished, copy_function=partial(_copy, wanted))
            unfinished.rename(copy)
            for other in _others(copies):
                number, _, identifier = other.name.partition("-")
                head = store.head(int(number))
                if head is None or head.id != identifier:
                    shutil.rmtree(other, ignore_errors=True)
    return copy


def _others(copies: Path) -> list[Path]:
    return [path for path in copies.iterdir() if not path.name.startswith(".")]


def _files(directory: Path) -> Iterator[tuple[tuple[str, tuple[int, str]], Path]]:
    """Each file of a table with its bytes and checksum; none where there is no table."""
    with contextlib.suppress(DimensionError):
        for name, fact in TableManifest.read(SharedFiles(), directory).files.items():
            yield (name, (fact.size_bytes, fact.checksum)), directory / name


def _copy(known: dict[Path, Path | None], source: str, target: str) -> None:
    same = known.get(Path(source))
    if same is None:
        shutil.copy2(source, target)
    else:
        SharedFiles().link(same, Path(target))


MAX_VERSIONS: Final = 4
"""Versions of a dimension table that are kept at most; those that a reader holds or a job may repeat come on top."""

MAX_ERROR_CHARACTERS: Final = 1000
"""Characters of the message that is kept about a load that failed."""

_Kept = TypeVar("_Kept")

_HEAD, _NOTE, _ERROR = "version.json", "table.json", "error.json"


class WholeLoad(msgspec.Struct, frozen=True):
    """When a source was read from its beginning to its end."""

    begin_ms: int
    end_ms: int


class TableVersion(msgspec.Struct, frozen=True):
    """What is known of a version: its number and an `id` that no other one has, when it was loaded and how large it is.

    `stamp` tells the state of the files it was read from, `ends` how far a topic had been read, by queue. `changed`
    rows are in its overlay, or hidden by it. `whole` tells when its source was last read from the beginning.
    """

    version: int
    id: str
    time_ms: int
    rows: int
    size_bytes: int
    load_ms: int
    stamp: str = ""
    ends: dict[str, int] = {}
    changed: int = 0
    whole: WholeLoad | None = None

    @property
    def read_from_ms(self) -> int:
        """When the reading of the whole source began that the version goes back to."""
        return self.time_ms - self.load_ms if self.whole is None else self.whole.begin_ms

    @property
    def read_until_ms(self) -> int:
        """When that reading ended."""
        return self.time_ms if self.whole is None else self.whole.end_ms


class TableNote(msgspec.Struct, frozen=True):
    """What a table is: its name in SQL, where its rows come from in words, its columns, the conditions of its rows.

    `reload` says in words when it is loaded again; `keys` are the indexes that joins want (`IndexKey.encoded`, JSON).
    """

    name: str
    connector: str
    place: str
    columns: tuple[str, ...]
    filters: tuple[str, ...] = ()
    reload: str = ""
    keys: tuple[str, ...] = ()


class LoadFailure(msgspec.Struct, frozen=True):
    """Why the newest load failed, and when."""

    time_ms: int
    words: str


class _Pins(msgspec.Struct, frozen=True):
    versions: tuple[int, ...]
    notes: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load made: rows and bytes, and what `TableVersion` keeps of where they are from."""

    rows: int
    size_bytes: int
    stamp: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    changed: int = 0
    whole: WholeLoad | None = None


class VersionLease:
    """A version that is not removed before `release`."""

    def __init__(self, head: TableVersion, directory: Path, lock: FileLock) -> None:
        self.head = head
        self.directory = directory
        self._lock = lock

    def release(self) -> None:
        """It may go, as far as this reader is concerned."""
        self._lock.release()


class VersionStore:
    """The versions in `directory`. Any number of processes may read, one builds at a time."""

    def __init__(self, directory: Path, *, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.directory = directory
        self._versions = VersionedDirectories(directory / "versions", directory / "current")
        self._clock_ms = clock_ms

    def note(self) -> TableNote | None:
        """What the table is; None where nothing was ever noted."""
        return _read_note(self.directory / _NOTE, TableNote)

    def describe(self, note: TableNote) -> None:
        """Keep what the table is, with the keys of all who described it.

        Raises DimensionError DIMENSION_NOT_WRITABLE.
        """
        try:
            self._versions.make_directory()
            with hold_lock(self.pinning):
                before = self.note()
                keys = dict.fromkeys((*(before.keys if before is not None else ()), *note.keys))
                merged = msgspec.structs.replace(note, keys=tuple(keys))
                if merged != before:
                    write_file(self.directory / _NOTE, msgspec.json.encode(merged))
        except OSError as error:
            raise self._not_writable(error) from None

    def current(self) -> TableVersion | None:
        """The version that counts; None before the first load."""
        number = self._versions.current()
        return None if number is None else self.head(number)

    def head(self, version: int) -> TableVersion | None:
        """What is known of a version; None where it is gone."""
        return _read_note(self._versions.path(version) / _HEAD, TableVersion)

    def directory_of(self, version: int) -> Path:
        """Where the files of a version are."""
        return self._versions.path(version)

    def versions(self) -> list[TableVersion]:
        """All that are kept, oldest first."""
        return [head for number in self._versions.numbers() if (head := self.head(number)) is not None]

    def load_failure(self) -> LoadFailure | None:
        """Why the newest load failed; None where it did not."""
        return _read_note(self.directory / _ERROR, LoadFailure)

    def load(self, fill: Callable[[Path], Loaded], *, newer_than: int | None = None) -> TableVersion | None:
        """The version that `fill` makes in the directory that it is given; from here on it counts.

        None where another process has loaded one since `newer_than` while this one waited. What `fill` raises is kept
        as the table's trouble, and raised; the version before it goes on counting.
        """
        try:
            self._versions.make_directory()
            with hold_lock(self.directory / "build.lock"):
                now = self.current()
                if now is not None and newer_than is not None and now.version > newer_than:
                    return None
                return self._load(fill)
        except OSError as error:
            refusal = self._not_writable(error)
            self.complain(str(refusal))
            raise refusal from None
        except BaseException as error:
            self.complain(str(error) or type(error).__name__)
            raise

    def lease(self, version: int) -> VersionLease | None:
        """A version that stays until it is released; None where it is gone."""
        if self.head(version) is None:
            return None
        try:
            lock = FileLock.take(self._lock_path(version), shared=True)
        except FileNotFoundError:
            return None
        assert lock is not None
        head = self.head(version)
        if head is None:
            lock.release()
            return None
        return VersionLease(head, self._versions.path(version), lock)

    def versions_by_job(self) -> dict[str, tuple[int, ...]]:
        """The versions that jobs may want again, by job; those whose notes were removed want none."""
        pins = {path.stem: _read_note(path, _Pins) for path in (self.directory / "pins").glob("*.json")}
        return {job: one.versions for job, one in pins.items() if one is not None and Path(one.notes).exists()}

    def pin_for(self, job: str, versions: tuple[int, ...], notes: Path) -> None:
        """Let no version go that `job` may want again as long as its directory `notes` is there.

        Call it where `pinning` is held.
        """
        write_file(self.directory / "pins" / f"{job}.json", msgspec.json.encode(_Pins(versions, str(notes))))

    @property
    def pinning(self) -> Path:
        """The lock under which a job chooses a version, so that it does not go in between."""
        return self.directory / "pin.lock"

    def forget(self, kept: int = MAX_VERSIONS) -> list[int]:
        """Remove versions until `kept` are left, the oldest first; the numbers that are gone.

        The one that counts stays, those that a reader holds, and those that a job may want again.
        """
        with hold_lock(self.pinning):
            numbers = self._versions.numbers()
            now = self.current()
            wanted = {number for versions in self.versions_by_job().values() for number in versions}
            wanted |= set() if now is None else {now.version}
            return [one for one in numbers[: max(0, len(numbers) - kept)] if one not in wanted and self._remove(one)]

    def drop(self) -> bool:
        """Remove the table with all its versions; False where a reader holds one or a load is under way.

        Raises OSError.
        """
        build = FileLock.take(self.directory / "build.lock", wait=False)
        if build is None:
            return False
        held: list[FileLock] = []
        try:
            with hold_lock(self.pinning):
                for number in self._versions.numbers():
                    lock = FileLock.take(self._lock_path(number), wait=False)
                    if lock is None:
                        return False
                    held.append(lock)
                gone = self.directory.with_name(f".gone-{self.directory.name}-{uuid.uuid4().hex[:8]}")
                self.directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        finally:
            for lock in (*held, build):
                lock.release()

    def _load(self, fill: Callable[[Path], Loaded]) -> TableVersion:
        head = self._versions.add(lambda number, building: self._fill(fill, number, building))
        (self.directory / _ERROR).unlink(missing_ok=True)
        self.forget()
        return head

    def _fill(self, fill: Callable[[Path], Loaded], number: int, building: Path) -> TableVersion:
        begin_ms = self._clock_ms()
        made = fill(building)
        end_ms = self._clock_ms()
        head = TableVersion(
            number,
            uuid.uuid4().hex,
            end_ms,
            made.rows,
            made.size_bytes,
            max(0, end_ms - begin_ms),
            made.stamp,
            made.ends,
            made.changed,
            made.whole,
        )
        write_file(building / _HEAD, msgspec.json.encode(head))
        return head

    def _remove(self, version: int) -> bool:
        lock = FileLock.take(self._lock_path(version), wait=False)
        if lock is None:
            return False
        try:
            gone = self._versions.take_away(version)
            lock.path.unlink(missing_ok=True)
        finally:
            lock.release()
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _lock_path(self, version: int) -> Path:
        return self.directory / "versions" / f".{version}.lock"

    def complain(self, words: str) -> None:
        """Keep why the table cannot be loaded again; blank: it can."""
        if not words:
            (self.directory / _ERROR).unlink(missing_ok=True)
            return
        trouble = LoadFailure(self._clock_ms(), words[:MAX_ERROR_CHARACTERS])
        try:
            write_file(self.directory / _ERROR, msgspec.json.encode(trouble))
        except OSError:
            # What keeps the words from being written is in the error that is raised.
            return

    def _not_writable(self, error: OSError) -> DimensionError:
        words = f"The dimension table in {self.directory} cannot be written: {error.strerror or error}."
        return DimensionError("DIMENSION_NOT_WRITABLE", words)


def _read_note(path: Path, of: type[_Kept]) -> _Kept | None:
    """What a file keeps; None where it is not there or is not whole."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=of)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
