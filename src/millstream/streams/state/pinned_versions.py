"""Versions pinned to micro-batches: chosen once, repeated on replay, kept beside the checkpoint.

A job takes what counts when a micro-batch begins. `BatchVersions` keeps the choice where Spark's own offset does not
tell it, `VersionCopies` keeps what was chosen, so that a replay needs no store. Both outlive a power failure before the
micro-batch uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from millstream.store.files import FileLayer
from millstream.streams.state.atomic_file import JOB_FILES, create_file, write_file

__all__ = ["BatchVersions", "VersionCopies", "take_or_fall_back"]

_Version = TypeVar("_Version")
_Error = TypeVar("_Error", bound=Exception)


class BatchVersions:
    """The version of each micro-batch, as a file `<micro-batch><suffix>` of `directory` with whatever names it."""

    def __init__(self, directory: Path, suffix: str = "", *, files: FileLayer = JOB_FILES) -> None:
        self._directory = directory
        self._suffix = suffix
        self._files = files

    def make_directory(self) -> None:
        """Make the directory before any micro-batch has a version. Raises OSError."""
        self._files.make_directory(self._directory)

    def find(self, batch: int) -> bytes | None:
        """The version of a micro-batch; None where it has none yet. Raises OSError."""
        try:
            return self._files.read_all(self._path(batch))
        except FileNotFoundError:
            return None

    def pin(self, batch: int, version: bytes) -> bytes:
        """The version of a micro-batch from here on: `version`, or that of who was faster. Raises OSError."""
        if create_file(self._path(batch), version, files=self._files):
            return version
        return self._files.read_all(self._path(batch))

    def batches(self) -> list[int]:
        """The micro-batches that have a version, oldest first."""
        stems = (
            name.removesuffix(self._suffix)
            for name in self._files.names(self._directory)
            if name.endswith(self._suffix)
        )
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def last(self) -> bytes | None:
        """The version of the newest micro-batch that has one."""
        batches = self.batches()
        return self.find(batches[-1]) if batches else None

    def forget_until(self, batch: int) -> None:
        """Forget that micro-batch and those before it."""
        for one in self.batches():
            if one <= batch:
                self._files.discard(self._path(one))

    def forget_all(self) -> None:
        """A run starts over: no micro-batch has a version."""
        for batch in self.batches():
            self._files.discard(self._path(batch))

    def _path(self, batch: int) -> Path:
        return self._directory / f"{batch}{self._suffix}"


class VersionCopies:
    """Copies of the versions that a job uses, as files `<name><suffix>` of `directory`."""

    def __init__(self, directory: Path, suffix: str, *, files: FileLayer = JOB_FILES) -> None:
        self.directory = directory
        self._suffix = suffix
        self._files = files

    def names(self) -> list[str]:
        """What is kept, in no order."""
        found = self._files.names(self.directory)
        return [name.removesuffix(self._suffix) for name in found if name.endswith(self._suffix) and name[0] != "."]

    def has(self, name: str) -> bool:
        """Whether a version is kept."""
        return self._files.exists(self.path(name))

    def keep(self, name: str, content: bytes) -> None:
        """Keep a version; it is on the disk when this returns. Raises OSError."""
        write_file(self.path(name), content, files=self._files)

    def read(self, name: str) -> bytes:
        """What was kept. Raises OSError."""
        return self._files.read_all(self.path(name))

    def forget_all_but(self, names: Collection[str]) -> None:
        """Remove the copies that no micro-batch may ask for any more."""
        for name in self.names():
            if name not in names:
                self._files.discard(self.path(name))

    def path(self, name: str) -> Path:
        """The file of a copy."""
        return self.directory / f"{name}{self._suffix}"


def take_or_fall_back(
    take: Callable[[], _Version], last: Callable[[], _Version | None], refusal: type[_Error]
) -> tuple[_Version, _Error | None]:
    """The version that `take` gives; the `last` one, and why, where it raises a `refusal`.

    Raises the refusal where there is no last one: a job does not start without a version.
    """
    try:
        return take(), None
    except refusal as error:
        kept = last()
        if kept is None:
            raise
        return kept, error
