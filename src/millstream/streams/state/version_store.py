"""Immutable versions and a current one: the core of the rule, model and dimension table stores.

A version is complete before it has its number, and has its number before it counts, so a writer that dies leaves the
version before or the one after. Numbers only grow, and none is given twice.

A file of a version: the store's magic, the SHA-256 of all that follows, a line of JSON about the version, its content.
The file `current`: `MSCURRENT 1`, the number and its SHA-256. Versions that are directories have a `current` of the
number alone; their files check themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from millstream.model.errors import StartRefused
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.streams.state.atomic_file import JOB_FILES, discard_unfinished, write_file

__all__ = [
    "LOCK_WAIT_S",
    "MAX_WHY_CHARACTERS",
    "StoreRefusals",
    "VersionedDirectories",
    "VersionedFiles",
    "lock_store",
    "refuse_unwritable",
]

LOCK_WAIT_S: Final = 10.0
"""Seconds that a change of a store waits for another one to end."""

MAX_WHY_CHARACTERS: Final = 1000
"""Characters of the words that a version keeps about why it is there."""

_CURRENT_MAGIC: Final = b"MSCURRENT 1"
_LOCK_PAUSE_S: Final = 0.05
_BUILDING: Final = ".building-"

_Head = TypeVar("_Head")
_Error = TypeVar("_Error", bound=Exception, covariant=True)
_Made = TypeVar("_Made")


class StoreRefusals(Protocol[_Error]):
    """The errors of one kind of store, in its own words."""

    def explain_missing(self, number: int | None, numbers: list[int]) -> _Error:
        """There is no version `number` but `numbers`; None where no version counts."""
        ...

    def explain_damage(self, path: Path, what: str) -> _Error:
        """The file does not hold what was written; `what` follows its name."""
        ...

    def explain_lock(self, holder: str, wait_s: float) -> _Error:
        """The process `holder` has been changing the store for `wait_s` seconds."""
        ...

    def explain_unwritable(self, reason: str) -> _Error:
        """The disk refuses a change."""
        ...


@contextlib.contextmanager
def lock_store(
    directory: Path, refusals: StoreRefusals[Exception], *, files: FileLayer, wait_s: float = LOCK_WAIT_S
) -> Iterator[None]:
    """A block that one writer of the store at a time runs; readers take no lock.

    Raises `in_use` where another one writes for longer than `wait_s` seconds, `not_writable`.
    """
    end_s = time.monotonic() + wait_s
    while True:
        try:
            lock = DirectoryLock(directory, files)
            break
        except StartRefused as refused:
            if refused.name != "DATA_DIRECTORY_IN_USE":
                raise refusals.explain_unwritable(_reason_of(refused.__cause__ or refused)) from None
            if time.monotonic() >= end_s:
                holder = files.read_all(directory / "lock").decode("ascii", "replace").strip()
                raise refusals.explain_lock(holder or "unknown", wait_s) from None
        time.sleep(_LOCK_PAUSE_S)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def refuse_unwritable(refusals: StoreRefusals[Exception]) -> Iterator[None]:
    """A block in which what the disk refuses is `not_writable`."""
    try:
        yield
    except OSError as error:
        raise refusals.explain_unwritable(_reason_of(error)) from error


class VersionedFiles(Generic[_Head, _Error]):
    """The versions of one thing as files `<number><suffix>` of the directory `versions`, and the file `current`.

    `head` is the type of what is known of a version without reading it. Reading raises the `not_found` and `damaged`
    of `refusals`. `add`, `discard` and `discard_all` want the store's lock, and raise `not_writable`.
    """

    def __init__(
        self,
        versions: Path,
        current: Path,
        suffix: str,
        magic: bytes,
        head: type[_Head],
        refusals: StoreRefusals[_Error],
        *,
        files: FileLayer,
    ) -> None:
        self._versions = versions
        self._current = current
        self._suffix = suffix
        self._magic = magic
        self._decoder = msgspec.json.Decoder(head)
        self._refusals = refusals
        self._files = files

    def numbers(self) -> list[int]:
        """The versions that are there, oldest first."""
        return _numbers(self._files.names(self._versions), self._suffix)

    def has_current(self) -> bool:
        """Whether a version counts."""
        return self._files.exists(self._current)

    def current(self) -> int:
        """The number of the version that counts."""
        try:
            content = self._files.read_all(self._current)
        except FileNotFoundError:
            raise self._refusals.explain_missing(None, self.numbers()) from None
        except OSError as error:
            raise self._refusals.explain_damage(self._current, f"cannot be read: {error.strerror}") from None
        magic, _, rest = content.rstrip(b"\n").partition(b"\n")
        number, _, checksum = rest.partition(b" ")
        if magic != _CURRENT_MAGIC or not number.isdigit() or checksum != _checksum(number):
            raise self._refusals.explain_damage(self._current, "is damaged")
        return int(number)

    def read(self, number: int) -> tuple[_Head, bytes]:
        """What is known of a version, and its content."""
        path = self.path(number)
        try:
            content = self._files.read_all(path)
        except FileNotFoundError:
            raise self._refusals.explain_missing(number, self.numbers()) from None
        except OSError as error:
            raise self._refusals.explain_damage(path, f"cannot be read: {error.strerror}") from None
        first, _, rest = content.partition(b"\n")
        if first != self._magic + b" " + _checksum(rest):
            raise self._refusals.explain_damage(path, "is damaged")
        head, _, body = rest.partition(b"\n")
        try:
            return self._decoder.decode(head), body
        except msgspec.MsgspecError as error:
            raise self._refusals.explain_damage(path, f"cannot be read by this release: {error}") from None

    def add(self, number: int, head: _Head, content: bytes) -> None:
        """Write a version, which counts from now on; it is on the disk when this returns."""
        rest = msgspec.json.encode(head) + b"\n" + content
        text = b"%d" % number
        current = _CURRENT_MAGIC + b"\n" + text + b" " + _checksum(text) + b"\n"
        with refuse_unwritable(self._refusals):
            for directory in {self._versions, self._current.parent}:
                discard_unfinished(directory, files=self._files)
            write_file(self.path(number), self._magic + b" " + _checksum(rest) + b"\n" + rest, files=self._files)
            write_file(self._current, current, files=self._files)

    def discard(self, numbers: Iterable[int]) -> None:
        """Remove versions, none of which may be the one that counts."""
        with refuse_unwritable(self._refusals):
            for number in numbers:
                self._files.discard(self.path(number))

    def discard_all(self) -> None:
        """Let none count, then remove them all; what a crash leaves behind is removed by the next attempt."""
        with refuse_unwritable(self._refusals):
            self._files.discard(self._current)
        self.discard(self.numbers())

    def path(self, number: int) -> Path:
        """The file of a version."""
        return self._versions / f"{number}{self._suffix}"


class VersionedDirectories:
    """The versions of one thing as directories `<number>` of the directory `versions`, and the file `current`.

    Callers keep writers apart. Changes raise OSError.
    """

    def __init__(self, versions: Path, current: Path, *, files: FileLayer = JOB_FILES) -> None:
        self._versions = versions
        self._current = current
        self._files = files

    def make_directory(self) -> None:
        """Make the directory of the versions; its name outlives a power failure, as those above it."""
        self._files.make_directory(self._versions)

    def numbers(self) -> list[int]:
        """The versions that are there, oldest first."""
        return _numbers(self._files.names(self._versions), "")

    def current(self) -> int | None:
        """The number of the version that counts; None before the first one."""
        try:
            text = self._files.read_all(self._current)
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    def path(self, number: int) -> Path:
        """The directory of a version."""
        return self._versions / str(number)

    def add(self, fill: Callable[[int, Path], _Made]) -> _Made:
        """What `fill` returns, which gets the next number and the directory to fill; the version counts from now on.

        `fill` syncs the files that it writes. Where it raises nothing is left.
        """
        number = max([self.current() or 0, *self.numbers()]) + 1
        for path in self._versions.glob(f"{_BUILDING}*"):
            shutil.rmtree(path, ignore_errors=True)
        building = self._versions / f"{_BUILDING}{number}"
        building.mkdir()
        try:
            made = fill(number, building)
            self._files.rename(building, self.path(number))
            self._files.sync_directory(self._versions)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        write_file(self._current, b"%d" % number, files=self._files)
        return made

    def take_away(self, number: int) -> Path:
        """Take the name from a version, at once; the directory is left to be removed at leisure."""
        gone = self._versions / f"{_BUILDING}gone-{number}"
        self._files.rename(self.path(number), gone)
        return gone


def _numbers(names: Iterable[str], suffix: str) -> list[int]:
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _reason_of(error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error)
