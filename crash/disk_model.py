"""What a disk may hold after a crash: the states that are legal for the file steps made so far.

Rules, after the ALICE study (OSDI 2014): a file's data and size are safe once the file is synced, an entry of a
directory once the directory is; until then each may be on the disk or not, whatever came later. The cache goes to the
disk by sectors of 512 bytes, each as it was at one moment since the last sync, so a later write of a sector brings the
earlier ones to the same sector along, and a long write may be torn between sectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "SECTOR_BYTES", "Choice", "DiskModel", "DiskState", "Step", "random_choice"]

SECTOR_BYTES = 512
ROOT = 0
"""The number of the data directory itself."""


class Step(NamedTuple):
    """One change or sync. Files and directories have numbers that outlive their names.

    `kind` is write or size (of the file `number`), sync (of a file), link or unlink (of `name` in the directory
    `number`, to `target`; a link replaces), sync directory, or sync all.
    """

    kind: str
    number: int
    position: int = 0
    data: bytes = b""
    name: str = ""
    target: int = 0
    is_directory: bool = False
    action: int = 0
    """Steps of one rename share it: they reach the disk together."""


Choice = Callable[[int, str], int]
"""Given how many versions something has and a word for it, the version to take: 0 is the oldest."""

DiskState = dict[str, bytes | None]
"""Path below the data directory to content; None for a directory."""


def random_choice(choose: random.Random, share: float) -> Choice:
    """Each thing at a version of its own; `share` is how much of all tends to be on the disk as it was last."""

    def pick(versions: int, _what: str) -> int:
        return versions - 1 if choose.random() < share else choose.randrange(versions)

    return pick


class _File:
    """A file in the cache and on the disk, and every content in between that a sector or the size had."""

    def __init__(self, content: bytes) -> None:
        self.durable = content
        self.cached = bytearray(content)
        self.sizes = [len(content)]
        self.sectors: dict[int, list[bytes]] = {}

    @property
    def is_dirty(self) -> bool:
        return len(self.sizes) > 1 or bool(self.sectors)

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        touched = range(position // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES) if data else range(0)
        self._remember(touched)
        if end > len(self.cached):
            self.cached.extend(bytes(end - len(self.cached)))
            self.sizes.append(end)
        self.cached[position:end] = data
        self._note(touched)

    def resize(self, length: int) -> None:
        size = len(self.cached)
        if length == size:
            return
        # Blocks that a shorter size frees are zeros when the file grows over them again.
        touched = range(length // SECTOR_BYTES, (size + SECTOR_BYTES - 1) // SECTOR_BYTES)
        self._remember(touched)
        if length < size:
            del self.cached[length:]
        else:
            self.cached.extend(bytes(length - size))
        self.sizes.append(length)
        self._note(touched)

    def _remember(self, touched: range) -> None:
        for sector in touched:
            if sector not in self.sectors:
                self.sectors[sector] = [_sector(self.cached, sector)]

    def _note(self, touched: range) -> None:
        for sector in touched:
            content = _sector(self.cached, sector)
            if content != self.sectors[sector][-1]:
                self.sectors[sector].append(content)

    def sync(self) -> None:
        self.durable = bytes(self.cached)
        self.sizes = [len(self.cached)]
        self.sectors.clear()

    def state(self, number: int, choose: Choice) -> bytes:
        if not self.is_dirty:
            return self.durable
        size = self.sizes[choose(len(self.sizes), f"size of {number}")]
        content = bytearray(self.durable)
        for sector, versions in self.sectors.items():
            version = versions[choose(len(versions), f"sector {sector} of {number}")]
            start = sector * SECTOR_BYTES
            if len(content) < start + SECTOR_BYTES:
                content.extend(bytes(start + SECTOR_BYTES - len(content)))
            content[start : start + SECTOR_BYTES] = version
        del content[size:]
        content.extend(bytes(size - len(content)))
        return bytes(content)


def _sector(content: bytearray, sector: int) -> bytes:
    start = sector * SECTOR_BYTES
    return bytes(content[start : start + SECTOR_BYTES]).ljust(SECTOR_BYTES, b"\0")


class DiskModel:
    """The disk under a data directory, moved on by `take`; `state` gives one legal content after a crash now."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._entries: dict[int, dict[str, int]] = {ROOT: {}}
        self._changes: list[Step] = []

    def add_file(self, number: int, directory: int, name: str, content: bytes) -> None:
        """A file that is on the disk from the start."""
        self._files[number] = _File(content)
        self._entries[directory][name] = number

    def add_directory(self, number: int, directory: int, name: str) -> None:
        """A directory that is on the disk from the start."""
        self._entries[number] = {}
        self._entries[directory][name] = number

    def take(self, step: Step) -> None:
        """Carry out one step."""
        match step.kind:
            case "write":
                self._files[step.number].write(step.position, step.data)
            case "size":
                self._files[step.number].resize(step.position)
            case "sync":
                self._files[step.number].sync()
            case "sync directory":
                self._sync_directory(step.number)
            case "sync all":
                self._sync_all()
            case _:
                if step.is_directory:
                    self._entries.setdefault(step.target, {})
                elif step.target not in self._files:
                    self._files[step.target] = _File(b"")
                self._changes.append(step)

    def _sync_directory(self, number: int) -> None:
        safe = {step.action for step in self._changes if step.number == number}
        for step in self._changes:
            if step.action in safe:
                _change(self._entries, step)
        self._changes = [step for step in self._changes if step.action not in safe]

    def _sync_all(self) -> None:
        for file in self._files.values():
            file.sync()
        for step in self._changes:
            _change(self._entries, step)
        self._changes.clear()

    def open_choices(self) -> int:
        """In how many things a crash now may go one way or the other; 0 if everything is on the disk."""
        counted = 0

        def count(_versions: int, _what: str) -> int:
            nonlocal counted
            counted += 1
            return 0

        self.state(count)
        return counted

    def state(self, choose: Choice) -> DiskState:
        """The content that the choices lead to; `choose` is asked in the same order each time."""
        entries = self._entries
        if self._changes:
            entries = {number: dict(names) for number, names in entries.items()}
            taken: dict[int, int] = {}
            for step in self._changes:
                if step.action not in taken:
                    taken[step.action] = choose(2, f"{step.kind} {step.name}")
                if taken[step.action]:
                    _change(entries, step)
        found = {number: file.state(number, choose) for number, file in self._files.items()}
        return dict(self._walk(entries, found, ROOT, Path()))

    def _walk(
        self, entries: dict[int, dict[str, int]], found: dict[int, bytes], directory: int, path: Path
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, number in sorted(entries[directory].items()):
            if number in entries:
                yield str(path / name), None
                yield from self._walk(entries, found, number, path / name)
            else:
                yield str(path / name), found[number]


def _change(entries: dict[int, dict[str, int]], step: Step) -> None:
    names = entries[step.number]
    if step.kind == "link":
        names[step.name] = step.target
    elif names.get(step.name) == step.target:
        del names[step.name]
