"""The store of rules: a directory of immutable versions of one rule set, and the name of the one that counts.

`versions/<number>.rules`: the words `MSRULES 1`, the SHA-256 of all that follows, a line of JSON about the version
(`VersionHead`), and the set's JSON packed by zstd. `current`: the words `MSCURRENT 1`, the number and its SHA-256.
`lock` names the process that writes. Numbers only grow, and none is given twice, also where a writer dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StartRefused
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer, SharedFiles
from millstream.streams.errors import RuleError
from millstream.streams.rules.rule import MAX_RULES, RuleSet

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, compress, decompress
else:
    from backports.zstd import ZstdError, compress, decompress

__all__ = ["LOCK_WAIT_S", "MIN_KEPT_VERSIONS", "RuleStore", "VersionHead"]

LOCK_WAIT_S: Final = 10.0
"""Seconds that a change of a rule store waits for another one to end."""

MIN_KEPT_VERSIONS: Final = 100
"""The newest versions of a rule store that are never forgotten."""

MAX_WHY_CHARACTERS: Final = 1000
"""Characters of the words that a version keeps about why it is there."""

_MAGIC, _CURRENT_MAGIC = b"MSRULES 1", b"MSCURRENT 1"
_SUFFIX = ".rules"
_LOCK_PAUSE_S = 0.05


class VersionHead(msgspec.Struct, frozen=True):
    """What is known of a version without reading its rules; `why` is what its writer said about the change."""

    version: int
    time_ms: int
    rules: int
    enabled: int
    why: str = ""


class RuleStore:
    """The rules in `directory`, which need not be there before the first `publish`.

    Readers take no lock: they see the version before a change or the one after it. Damage is a RuleError
    RULE_STORE_DAMAGED that names the file. `files` and `lock_wait_s` are for tests.
    """

    def __init__(self, directory: Path, *, files: FileLayer | None = None, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.directory = directory
        self._files = files or SharedFiles()
        self._lock_wait_s = lock_wait_s

    def exists(self) -> bool:
        """Whether rules were ever published here."""
        return self._files.exists(self._current_path)

    def current(self) -> int:
        """The number of the version that counts. Raises RULE_STORE_NOT_FOUND where nothing was published yet."""
        try:
            content = self._files.read_all(self._current_path)
        except FileNotFoundError:
            raise self._not_found() from None
        except OSError as error:
            raise self._damaged(self._current_path, f"cannot be read: {error.strerror}") from None
        magic, _, rest = content.rstrip(b"\n").partition(b"\n")
        number, _, checksum = rest.partition(b" ")
        if magic != _CURRENT_MAGIC or not number.isdigit() or checksum != _checksum(number):
            raise self._damaged(self._current_path, "is damaged")
        return int(number)

    def load(self, version: int) -> RuleSet:
        """The rules of a version. Raises RULE_VERSION_NOT_FOUND, RULE_STORE_DAMAGED."""
        path = self._path(version)
        _, packed = self._read(path)
        try:
            return RuleSet.decode(decompress(packed))
        except (ZstdError, msgspec.MsgspecError) as error:
            raise self._damaged(path, f"cannot be read by this release: {error}") from None

    def latest(self) -> RuleSet:
        """The rules that count now."""
        return self.load(self.current())

    def versions(self) -> list[VersionHead | RuleError]:
        """What is known of each version, oldest first; an error stands for one that is damaged."""
        found: list[VersionHead | RuleError] = []
        for number in self._numbers():
            try:
                found.append(self._read(self._path(number))[0])
            except RuleError as error:
                found.append(error)
        return found

    def publish(self, change: Callable[[RuleSet], RuleSet], *, why: str = "") -> RuleSet:
        """The set that `change` makes of the present one, stored as the next version, on the disk when this returns.

        A set that stays as it was publishes nothing. Raises RULE_STORE_IN_USE where another process writes for longer
        than `LOCK_WAIT_S`, RULE_STORE_NOT_WRITABLE, RULE_STORE_FULL; then nothing is changed.
        """
        with self._locked():
            before = self.latest() if self.exists() else None
            return self._put(before, change(before or RuleSet(0)), why)

    def rollback(self, version: int) -> RuleSet:
        """The rules of an older version, made the next one; also where what counts now is damaged."""
        wanted = self.load(version)
        with self._locked():
            try:
                before: RuleSet | None = self.latest()
            except RuleError:
                before = None
            return self._put(before, wanted, f"as in version {version}")

    def forget(self, before: int, in_use: Collection[int] = ()) -> list[int]:
        """Remove the versions with numbers below `before`; the numbers that are gone.

        The newest `MIN_KEPT_VERSIONS`, the one that counts and those `in_use` stay.
        """
        with self._locked():
            kept = {self.current(), *in_use}
            gone = [one for one in self._numbers()[:-MIN_KEPT_VERSIONS] if one < before and one not in kept]
            with self._writing():
                for number in gone:
                    self._files.discard(self._path(number))
        return gone

    @property
    def _current_path(self) -> Path:
        return self.directory / "current"

    @property
    def _versions_path(self) -> Path:
        return self.directory / "versions"

    def _path(self, version: int) -> Path:
        return self._versions_path / f"{version}{_SUFFIX}"

    def _numbers(self) -> list[int]:
        names = self._files.names(self._versions_path)
        stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def _read(self, path: Path) -> tuple[VersionHead, bytes]:
        try:
            content = self._files.read_all(path)
        except FileNotFoundError:
            raise self._unknown(path) from None
        except OSError as error:
            raise self._damaged(path, f"cannot be read: {error.strerror}") from None
        first, _, rest = content.partition(b"\n")
        if first != _MAGIC + b" " + _checksum(rest):
            raise self._damaged(path, "is damaged")
        head, _, packed = rest.partition(b"\n")
        try:
            return msgspec.json.decode(head, type=VersionHead), packed
        except msgspec.MsgspecError as error:
            raise self._damaged(path, f"cannot be read by this release: {error}") from None

    def _put(self, before: RuleSet | None, after: RuleSet, why: str) -> RuleSet:
        if before is not None and (before.rules, before.paths) == (after.rules, after.paths):
            return before
        self._check(after)
        number = max((*self._numbers(), before.version if before else 0)) + 1
        after = msgspec.structs.replace(after, version=number)
        enabled = sum(rule.enabled for rule in after.rules)
        content = self._encoded(after)
        head = VersionHead(number, time.time_ns() // 1_000_000, len(after.rules), enabled, why[:MAX_WHY_CHARACTERS])
        rest = msgspec.json.encode(head) + b"\n" + compress(content)
        with self._writing():
            self._files.make_directory(self._versions_path)
            for name in self._files.names(self._versions_path):
                if not name.endswith(_SUFFIX):
                    self._files.discard(self._versions_path / name)
            self._files.replace(self._path(number), _MAGIC + b" " + _checksum(rest) + b"\n" + rest)
            text = b"%d" % number
            self._files.replace(self._current_path, _CURRENT_MAGIC + b"\n" + text + b" " + _checksum(text) + b"\n")
        return after

    def _encoded(self, rule_set: RuleSet) -> bytes:
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

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        end_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                lock = DirectoryLock(self.directory, self._files)
                break
            except StartRefused as refused:
                if refused.name != "DATA_DIRECTORY_IN_USE":
                    raise self._not_writable(refused.__cause__ or refused) from None
                if time.monotonic() >= end_s:
                    raise self._in_use() from None
            time.sleep(_LOCK_PAUSE_S)
        try:
            yield
        finally:
            lock.release()

    def _in_use(self) -> RuleError:
        holder = self._files.read_all(self.directory / "lock").decode("ascii", "replace").strip()
        words = f"The rule store {self.directory} is being changed by the process {holder or 'unknown'}"
        return RuleError("RULE_STORE_IN_USE", f"{words}, for {self._lock_wait_s:g} s already.")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._not_writable(error) from error

    def _not_writable(self, error: BaseException) -> RuleError:
        reason = error.strerror if isinstance(error, OSError) else None
        words = f"The rule store {self.directory} cannot be written: {reason or error}."
        return RuleError("RULE_STORE_NOT_WRITABLE", words)

    def _unknown(self, path: Path) -> RuleError:
        numbers = self._numbers()
        if not numbers:
            return self._not_found()
        there = f"it has {numbers[0]} to {numbers[-1]}"
        return RuleError(
            "RULE_VERSION_NOT_FOUND", f"The rule store {self.directory} has no version {path.stem}; {there}."
        )

    def _not_found(self) -> RuleError:
        return RuleError("RULE_STORE_NOT_FOUND", f"{self.directory} holds no rules.")

    def _damaged(self, path: Path, what: str) -> RuleError:
        return RuleError("RULE_STORE_DAMAGED", f"The file {path} of the rule store {what}.")


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
