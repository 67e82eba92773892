"""Rules that a job leaves out, in whatever version: what a replay of an old version would stumble over again."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from millstream.streams.rules.notes import QuarantineNote
from millstream.streams.state.atomic_file import write_file

__all__ = ["LeftOut"]

_SUFFIX = ".json"
_DECODER = msgspec.json.Decoder(list[QuarantineNote])
_SUSPECTS = msgspec.json.Decoder(dict[str, int])


class LeftOut:
    """The list in `directory`. Workers note what they found; the driver alone changes the list."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._list = directory / f"left-out{_SUFFIX}"
        self._suspects = directory / f"suspects{_SUFFIX}"
        self._noted = directory / "noted"

    def all(self) -> list[QuarantineNote]:
        """The list, oldest first."""
        try:
            return _DECODER.decode(self._list.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return []

    def ids(self, version: int) -> frozenset[str]:
        """The rules that a version is judged without: those that failed in it or a later one."""
        return frozenset(one.rule for one in self.all() if one.version >= version)

    def note(self, found: list[QuarantineNote]) -> None:
        """Keep what a worker found until the driver takes it."""
        if found:
            path = self._noted / f"{os.getpid()}-{time.time_ns()}{_SUFFIX}"
            write_file(path, msgspec.json.encode(found), durable=False)

    def take_notes(self) -> list[QuarantineNote]:
        """What workers found, for the driver, which adds it before it forgets it."""
        found: list[QuarantineNote] = []
        for path in sorted(self._noted.glob(f"*{_SUFFIX}")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found += _DECODER.decode(path.read_bytes())
        return found

    def forget_notes(self, found: list[QuarantineNote]) -> None:
        """Remove the notes whose rules are all on the list by now."""
        known = {(one.rule, one.version) for one in found}
        for path in self._noted.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                if all((one.rule, one.version) in known for one in _DECODER.decode(path.read_bytes())):
                    path.unlink()

    def add(self, found: list[QuarantineNote]) -> list[QuarantineNote]:
        """Put rules on the list; those that were not there."""
        before = self.all()
        known = {(one.rule, one.version) for one in before}
        new = list({(one.rule, one.version): one for one in found if (one.rule, one.version) not in known}.values())
        if new:
            write_file(self._list, msgspec.json.encode(before + new))
        return new

    def suspicions(self) -> int:
        """How often processes ended in calls without a word."""
        return sum(self._suspicions().values())

    def suspect(self, function: str) -> int:
        """How often a process ended in a call of the function without a word, this time included."""
        counts = self._suspicions()
        counts[function] = counts.get(function, 0) + 1
        write_file(self._suspects, msgspec.json.encode(counts))
        return counts[function]

    def _suspicions(self) -> dict[str, int]:
        try:
            return _SUSPECTS.decode(self._suspects.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return {}
