"""A file layer that notes every change and sync as a step of the disk model."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path

from crash.disk_model import ROOT, Choice, DiskModel, DiskState, Step
from crash.file_twins import HastyFiles
from millstream.store.files import FileLayer

__all__ = ["HASTY", "TracedFiles", "crash_state", "lay_out"]


class TracedFiles(FileLayer):
    """Works on real files below `root`, waits for no disk, and keeps `steps` in the order they were made.

    `model_at_start` is the disk before the first step: everything that is below `root` by then is safe on it.
    """

    def __init__(self, root: Path) -> None:
        self.steps: list[Step] = []
        self.model_at_start = DiskModel()
        self._root = root
        self._numbers: dict[Path, int] = {root: ROOT}
        self._names: dict[int, dict[str, bool]] = {ROOT: {}}
        self._descriptors: dict[int, int] = {}
        self._next = ROOT + 1
        self._actions = 0
        self._adopt(root)

    def _adopt(self, directory: Path) -> None:
        if not directory.is_dir():
            return
        above = self._numbers[directory]
        for path in sorted(directory.iterdir()):
            number = self._number(path, above)
            if path.is_dir():
                self._names[number] = {}
                self.model_at_start.add_directory(number, above, path.name)
                self._adopt(path)
            else:
                self.model_at_start.add_file(number, above, path.name, path.read_bytes())

    def _number(self, path: Path, above: int) -> int:
        number = self._numbers[path] = self._next
        self._next += 1
        self._names[above][path.name] = path.is_dir()
        return number

    def _entry_step(self, kind: str, path: Path, target: int, action: int, *, is_directory: bool = False) -> None:
        above = self._numbers[path.parent]
        self.steps.append(Step(kind, above, name=path.name, target=target, is_directory=is_directory, action=action))

    def _action(self) -> int:
        self._actions += 1
        return self._actions

    def _compare(self, directory: Path) -> None:
        """Note the entries that have come or gone since the last look."""
        known = self._names.get(self._numbers.get(directory, -1))
        if known is None:
            return
        there = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
        for name in sorted(there - known.keys()):
            self._appeared(directory / name)
        for name in sorted(known.keys() - there):
            self._vanished(directory / name)

    def _appeared(self, path: Path) -> None:
        number = self._number(path, self._numbers[path.parent])
        is_directory = path.is_dir()
        self._entry_step("link", path, number, self._action(), is_directory=is_directory)
        if is_directory:
            self._names[number] = {}
            self._compare(path)

    def _vanished(self, path: Path) -> None:
        number = self._numbers.pop(path)
        if self._names[self._numbers[path.parent]].pop(path.name):
            self._numbers[path] = number
            for name in sorted(self._names[number]):
                self._vanished(path / name)
            del self._numbers[path]
        self._entry_step("unlink", path, number, self._action())

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        if path not in self._numbers:
            self._appeared(path)
        self._descriptors[descriptor] = self._numbers[path]
        return descriptor

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        super().pwrite(descriptor, data, position)
        self.steps.append(Step("write", self._descriptors[descriptor], position, bytes(data)))

    def truncate(self, descriptor: int, length: int) -> None:
        super().truncate(descriptor, length)
        self.steps.append(Step("size", self._descriptors[descriptor], length))

    def preallocate(self, descriptor: int, position: int, length: int) -> None:
        before = self.size(descriptor)
        super().preallocate(descriptor, position, length)
        if self.size(descriptor) != before:
            self.steps.append(Step("size", self._descriptors[descriptor], self.size(descriptor)))

    def fdatasync(self, descriptor: int) -> None:
        self.steps.append(Step("sync", self._descriptors[descriptor]))

    def fsync(self, descriptor: int) -> None:
        self.fdatasync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        number, action = self._numbers.pop(source), self._action()
        self._names[self._numbers[source.parent]].pop(source.name)
        self._numbers[target] = number
        self._names[self._numbers[target.parent]][target.name] = False
        self._entry_step("link", target, number, action)
        self._entry_step("unlink", source, number, action)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        number = self._numbers[source]
        self._numbers[target] = number
        self._names[self._numbers[target.parent]][target.name] = False
        self._entry_step("link", target, number, self._action())

    def sync_directory(self, path: Path) -> None:
        self._compare(path)
        if path in self._numbers:
            self.steps.append(Step("sync directory", self._numbers[path]))

    def sync_file_system(self, path: Path) -> None:
        for directory in [path for path, number in self._numbers.items() if number in self._names]:
            self._compare(directory)
        self.steps.append(Step("sync all", ROOT))

    def make_directory(self, path: Path, *, sync: bool = True) -> None:
        super().make_directory(path, sync=sync)
        if path.is_relative_to(self._root) and path != self._root:
            self._compare(path.parent)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._compare(path.parent)

    def discard(self, path: Path) -> None:
        super().discard(path)
        self._compare(path.parent)

    def remove_tree(self, path: Path, *, sync: bool = True) -> None:
        super().remove_tree(path, sync=sync)
        self._compare(path.parent)


HASTY = HastyFiles()
"""For opening what a crash left, which is thrown away afterwards."""


def crash_state(files: TracedFiles, choose: Choice, steps: int | None = None) -> DiskState:
    """One content of the root that a crash after so many steps (without it: all) may leave."""
    model = deepcopy(files.model_at_start)
    for step in files.steps[:steps]:
        model.take(step)
    return model.state(choose)


def lay_out(state: DiskState, directory: Path) -> None:
    """Make a directory with the state's files, in place of what is there."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in state.items():
        path = directory / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
