"""The rule store: immutable versions of one rule set, and the current one.

`versions/<number>.rules` is a file of `VersionedFiles` with the magic `MSRULES 1`: its line of JSON is a `RuleSetHead`,
its content the set's JSON packed by zstd. `lock` names the process that writes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.errors import RuleError
from millstream.streams.rules.rule import MAX_RULES, RuleSet
from millstream.streams.state.version_store import LOCK_WAIT_S, MAX_WHY_CHARACTERS, VersionedFiles, lock_store

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, compress, decompress
else:
    from backports.zstd import ZstdError, compress, decompress

__all__ = ["MIN_KEPT_VERSIONS", "RuleSetHead", "RuleStore"]

MIN_KEPT_VERSIONS: Final = 100
"""The newest versions of a rule store that are never forgotten."""

_MAGIC = b"MSRULES 1"
_SUFFIX = ".rules"


class RuleSetHead(msgspec.Struct, frozen=True):
    """What is known of a version without reading its rules; `why` is what its writer said about the change."""

    version: int
    time_ms: int
    rules: int
    enabled: int
    why: str = ""


class _Refusals:
    """Errors in the words of a store of rules."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def explain_missing(self, number: int | None, numbers: list[int]) -> RuleError:
        if number is None or not numbers:
            return RuleError("RULE_STORE_NOT_FOUND", f"{self._directory} holds no rules.")
        there = f"it has {numbers[0]} to {numbers[-1]}"
        words = f"The rule store {self._directory} has no version {number}; {there}."
        return RuleError("RULE_VERSION_NOT_FOUND", words)

    def explain_damage(self, path: Path, what: str) -> RuleError:
        return RuleError("RULE_STORE_DAMAGED", f"The file {path} of the rule store {what}.")

    def explain_lock(self, holder: str, wait_s: float) -> RuleError:
        words = f"The rule store {self._directory} is being changed by the process {holder}, for {wait_s:g} s already."
        return RuleError("RULE_STORE_IN_USE", words)

    def explain_unwritable(self, reason: str) -> RuleError:
        return RuleError("RULE_STORE_NOT_WRITABLE", f"The rule store {self._directory} cannot be written: {reason}.")


class RuleStore:
    """The rules in `directory`, which need not be there before the first `publish`.

    Readers take no lock: they see the version before a change or the one after it. Damage is a RuleError
    RULE_STORE_DAMAGED that names the file. `files` and `lock_wait_s` are for tests.
    """

    def __init__(self, directory: Path, *, files: FileLayer | None = None, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.directory = directory
        self._files = files or SharedFiles()
        self._lock_wait_s = lock_wait_s
        self._refusals = _Refusals(directory)
        versions, current = directory / "versions", directory / "current"
        self._versions = VersionedFiles(
            versions, current, _SUFFIX, _MAGIC, RuleSetHead, self._refusals, files=self._files
        )

    def exists(self) -> bool:
        """Whether rules were ever published here."""
        return self._versions.has_current()

    def current(self) -> int:
        """The number of the version that counts. Raises RULE_STORE_NOT_FOUND where nothing was published yet."""
        return self._versions.current()

    def load(self, version: int) -> RuleSet:
        """The rules of a version. Raises RULE_VERSION_NOT_FOUND, RULE_STORE_DAMAGED."""
        _, packed = self._versions.read(version)
        try:
            return RuleSet.decode(decompress(packed))
        except (ZstdError, msgspec.MsgspecError) as error:
            path = self._versions.path(version)
            raise self._refusals.explain_damage(path, f"cannot be read by this release: {error}") from None

    def latest(self) -> RuleSet:
        """The rules that count now."""
        return self.load(self.current())

    def versions(self) -> list[RuleSetHead | RuleError]:
        """What is known of each version, oldest first; an error stands for one that is damaged."""
        found: list[RuleSetHead | RuleError] = []
        for number in self._versions.numbers():
            try:
                found.append(self._versions.read(number)[0])
            except RuleError as error:
                found.append(error)
        return found

    def publish(self, change: Callable[[RuleSet], RuleSet], *, why: str = "") -> RuleSet:
        """The set that `change` makes of the present one, stored as the next version, on the disk when this returns.

        A set that stays as it was publishes nothing. Raises RULE_STORE_IN_USE where another process writes for longer
        than `LOCK_WAIT_S`, RULE_STORE_NOT_WRITABLE, RULE_STORE_FULL; then nothing is changed.
        """
        with self._hold_lock():
            before = self.latest() if self.exists() else None
            return self._add_version(before, change(before or RuleSet(0)), why)

    def rollback(self, version: int) -> RuleSet:
        """The rules of an older version, made the next one; also where what counts now is damaged."""
        wanted = self.load(version)
        with self._hold_lock():
            try:
                before: RuleSet | None = self.latest()
            except RuleError:
                before = None
            return self._add_version(before, wanted, f"as in version {version}")

    def forget(self, before: int, in_use: Collection[int] = ()) -> list[int]:
        """Remove the versions with numbers below `before`; the numbers that are gone.

        The newest `MIN_KEPT_VERSIONS`, the one that counts and those `in_use` stay.
        """
        with self._hold_lock():
            kept = {self.current(), *in_use}
            old = self._versions.numbers()[:-MIN_KEPT_VERSIONS]
            gone = [number for number in old if number < before and number not in kept]
            self._versions.discard(gone)
        return gone

    def _hold_lock(self) -> AbstractContextManager[None]:
        return lock_store(self.directory, self._refusals, files=self._files, wait_s=self._lock_wait_s)

    def _add_version(self, before: RuleSet | None, after: RuleSet, why: str) -> RuleSet:
        if before is not None and (before.rules, before.paths) == (after.rules, after.paths):
            return before
        self._check(after)
        number = max((*self._versions.numbers(), before.version if before else 0)) + 1
        after = msgspec.structs.replace(after, version=number)
        enabled = sum(rule.enabled for rule in after.rules)
        content = self._encode(after)
        head = RuleSetHead(number, time.time_ns() // 1_000_000, len(after.rules), enabled, why[:MAX_WHY_CHARACTERS])
        self._versions.add(number, head, compress(content))
        return after

    def _encode(self, rule_set: RuleSet) -> bytes:
        """The set's JSON, which can be read again: what is written never damages the store."""
        try:
            content = rule_set.encode()
            if RuleSet.decode(content) == rule_set:
                return content
            words = "they would be read otherwise than they are"
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            words = ascii(str(error))[1:-1]
        raise RuleError("RULE_REFUSED", f"These rules cannot be kept: {words}.")

    def _check(self, rule_set: RuleSet) -> None:
        if len(rule_set.rules) > MAX_RULES:
            words = f"{self.directory} would hold {len(rule_set.rules):,} rules; {MAX_RULES:,} are the most."
            raise RuleError("RULE_STORE_FULL", words)
        repeated = [one for one, count in Counter(rule.id for rule in rule_set.rules).items() if count > 1]
        if repeated:
            raise RuleError("RULE_REFUSED", f"Several rules have the id {repeated[0]!r}.")
