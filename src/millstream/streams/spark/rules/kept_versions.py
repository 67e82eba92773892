"""The versions of rules that a job uses, kept beside its checkpoint: a replay needs them, the store may be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError, RuleError
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.pinned_versions import VersionCopies, take_or_fall_back

__all__ = ["KEPT_VERSIONS", "KeptVersions"]

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
