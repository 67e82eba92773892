"""Copies of a table's versions on the machine's own disk, where the versions are on one that machines share."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from millstream.store.files import SharedFiles
from millstream.streams.dimension.manifest import TableManifest
from millstream.streams.dimension.versions import VersionLease, VersionStore
from millstream.streams.errors import DimensionError
from millstream.streams.state.file_locks import hold_lock

__all__ = ["copy_version"]


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
