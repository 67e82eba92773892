"""The versions of rules that a job uses, kept beside its checkpoint: a replay needs them, the store may be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError, RuleError
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.store import RuleStore
from millstream.streams.whole_files import put

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
        self._directory = directory / "versions"
        self._trouble = directory / "trouble"
        self._store = RuleStore(store)

    def take(self) -> int:
        """The version that counts now, kept from here on; the newest that is kept where the store has none to give.

        Raises the store's RuleError where nothing is kept either.
        """
        try:
            version = self._store.current()
            if version not in self.numbers():
                self._keep(self._store.load(version))
        except RuleError as error:
            newest = self.newest()
            if newest is None:
                raise
            self._say(f"{error.message} Version {newest} of the rules goes on judging.")
            return newest
        self._say(None)
        return version

    def newest(self) -> int | None:
        """The newest that is kept."""
        return max(self.numbers(), default=None)

    def numbers(self) -> list[int]:
        """The versions that are kept, oldest first."""
        stems = (path.stem for path in self._directory.glob(f"*{_SUFFIX}"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def load(self, version: int) -> RuleSet:
        """A version that was taken. Raises JobError JOB_FAILED where it is gone."""
        try:
            return RuleSet.decode((self._directory / f"{version}{_SUFFIX}").read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            words = f"Version {version} of the rules judges this micro-batch and is not in {self._directory}: {error}."
            raise JobError("JOB_FAILED", words, remedy="Remove the checkpoint, which begins anew.") from None

    def trouble(self) -> str | None:
        """Why no newer version could be taken the last time."""
        try:
            return self._trouble.read_text() or None
        except OSError:
            return None

    def _keep(self, rule_set: RuleSet) -> None:
        # Judging needs no texts, and they are most of a set.
        rules = tuple(msgspec.structs.replace(rule, text="") for rule in rule_set.rules)
        content = msgspec.structs.replace(rule_set, rules=rules).encode()
        put(self._directory / f"{rule_set.version}{_SUFFIX}", content, synced=True)
        for number in self.numbers()[:-KEPT_VERSIONS]:
            (self._directory / f"{number}{_SUFFIX}").unlink(missing_ok=True)

    def _say(self, trouble: str | None) -> None:
        if trouble is None:
            self._trouble.unlink(missing_ok=True)
        else:
            self._trouble.parent.mkdir(parents=True, exist_ok=True)
            self._trouble.write_text(trouble)
