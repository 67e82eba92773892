"""INSERT OVERWRITE at its commit: new files get their names, then those go that they replace.

What is to be done is noted first, so that a start after a crash completes it. In between a reader may see old and new
rows side by side, never fewer than either.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.streams.connectors.filesystem.part_files import hidden_path_of
from millstream.streams.state.atomic_file import write_file

__all__ = ["Swap"]

_SUFFIX = "-swap.json"


class Swap(msgspec.Struct, frozen=True):
    """Files to name and files to remove, all under `root`; `marks` say that a partition is whole, and go first."""

    root: str
    new: list[str]
    old: list[str]
    marks: list[str]

    @classmethod
    def complete(cls, notes: Path) -> None:
        """Do what is left of all that was noted in that directory."""
        for file in sorted(notes.glob(f"[!.]*{_SUFFIX}")):
            msgspec.json.decode(file.read_bytes(), type=cls)._run()
            file.unlink()

    def run(self, notes: Path, number: int) -> None:
        """Note it under the sink's number and do it."""
        file = notes / f"{number}{_SUFFIX}"
        write_file(file, msgspec.json.encode(self))
        self._run()
        file.unlink()

    def _run(self) -> None:
        root = Path(self.root)
        for path in self.marks:
            (root / path).unlink(missing_ok=True)
        for path in self.new:
            unnamed = hidden_path_of(root / path)
            if unnamed.exists():
                unnamed.replace(root / path)
        for path in self.old:
            (root / path).unlink(missing_ok=True)
