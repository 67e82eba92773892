"""The versions of rules that a job uses, kept beside its checkpoint, and rules that it leaves out."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError, RuleError
from millstream.streams.rules.notes import QuarantineNote
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.pinned_versions import VersionCopies, take_or_fall_back

__all__ = ["KEPT_VERSIONS", "KeptVersions", "LeftOut"]


KEPT_VERSIONS: Final = 5
"""Versions that a job keeps: a replay needs the one of the last micro-batch, the others are for diagnosis."""

_SUFFIX = ".json"


class KeptVersions:
    """The versions in `directory`, taken from the store.

    What keeps a newer version from being taken is written down as the job's trouble: the planner of micro-batches is a
    process of its own.
    """

    def __init__(self, directory: Path, store: Path) -> None:
        self._copies = VersionCopies(directory / "versions", _SUFFIX)
        self._trouble = directory / "trouble"
        self._store = RuleStore(store)

    def take(self) -> int:
        """The version that counts now, kept from here on; the newest that is kept where the store has none to give.

        Raises the store's RuleError where nothing is kept either.
        """
        version, error = take_or_fall_back(self._take, self.newest, RuleError)
        self._note(None if error is None else f"{error.message} Version {version} of the rules goes on judging.")
        return version

    def newest(self) -> int | None:
        """The newest that is kept."""
        return max(self.numbers(), default=None)

    def numbers(self) -> list[int]:
        """The versions that are kept, oldest first."""
        return sorted(int(name) for name in self._copies.names() if name.isdigit())

    def load(self, version: int) -> RuleSet:
        """A version that was taken. Raises JobError JOB_FAILED where it is gone."""
        try:
            return RuleSet.decode(self._copies.read(str(version)))
        except (OSError, msgspec.MsgspecError) as error:
            directory = self._copies.directory
            words = f"Version {version} of the rules judges this micro-batch and is not in {directory}: {error}."
            raise JobError("JOB_FAILED", words, remedy="Remove the checkpoint, which begins anew.") from None

    def trouble(self) -> str | None:
        """Why no newer version could be taken the last time."""
        try:
            return self._trouble.read_text() or None
        except OSError:
            return None

    def _take(self) -> int:
        version = self._store.current()
        if not self._copies.has(str(version)):
            self._keep(self._store.load(version))
        return version

    def _keep(self, rule_set: RuleSet) -> None:
        # Judging needs no texts, and they are most of a set.
        rules = tuple(msgspec.structs.replace(rule, text="") for rule in rule_set.rules)
        content = msgspec.structs.replace(rule_set, rules=rules).encode()
        self._copies.keep(str(rule_set.version), content)
        self._copies.forget_all_but([str(number) for number in self.numbers()[-KEPT_VERSIONS:]])

    def _note(self, trouble: str | None) -> None:
        if trouble is None:
            self._trouble.unlink(missing_ok=True)
        else:
            # It only informs, and the next micro-batch says it again.
            write_file(self._trouble, trouble.encode(), durable=False)


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
