"""The state files of key groups: the changes of each micro-batch, and snapshots of a few groups at a time.

A file holds sections, one for each group that has something to say. Its name tells what it covers:

    17.64-127.delta     what micro-batch 17 changed in the groups 64 to 127
    17.64-70.groups     all of the groups 64 to 70 as they are after micro-batch 17

So a listing tells all that matters: which files a group is made of, and which files nobody needs any more. A file is
removed when snapshots of the micro-batches before the present one cover all of its groups, whichever tasks wrote them:
the present micro-batch may be repeated, from the state before it.

Format, little-endian: the magic `MSG2`, the CRC-32 of all that follows the first 8 bytes, the bytes of the table, the
table (msgpack: pairs of group and bytes), then the sections in the table's order. `MSG1` is the same; its readers
expect sections of one pickle, so they must not read what is written now.

Snapshots: where the deltas that a start has to read are larger than the snapshots, or are too many, each micro-batch
takes a snapshot of the groups that were longest without one, up to a budget. So no micro-batch waits for a snapshot of
everything, except the first one after groups came from tasks with other ranges, which reads them all as well.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from millstream.streams.errors import JobError
from millstream.streams.state.state_files import StateFiles

__all__ = ["SHARED", "GroupLog", "Sections"]

SHARED: Final = -1
"""The section of what all groups of an operator share: its event time. It is in every file."""

MIN_SNAPSHOT_BYTES: Final = 1024 * 1024
"""Deltas of fewer bytes than this are not replaced by snapshots."""

MAX_DELTAS: Final = 200
"""Deltas of a task beyond which each micro-batch takes a snapshot of some groups, so that a start reads few files."""

SNAPSHOT_BYTES: Final = 512 * 1024
"""Bytes of groups whose snapshot one micro-batch takes; twice its delta, where that is more. A group is never cut."""

MIN_KEPT_VERSIONS: Final = 20
"""Micro-batches whose deltas stay at least: a worker that was passed over catches up from them."""

_MAGIC: Final = b"MSG2"
_MAGICS: Final = (b"MSG1", _MAGIC)
_HEAD: Final = struct.Struct("<4sII")
_CHECKED_FROM: Final = 8
_NAME: Final = re.compile(r"(\d+)\.(\d+)-(\d+)\.(delta|groups)")
_NEVER: Final = -1

Sections = Mapping[int, bytes]
"""State by group, and by `SHARED`."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file of the log: the micro-batch after which it holds and the groups that it covers, both ends with it."""

    version: int
    first: int
    last: int
    whole: bool
    size: int

    @property
    def name(self) -> str:
        return f"{self.version}.{self.first}-{self.last}.{'groups' if self.whole else 'delta'}"


class GroupLog:
    """The files that concern the `groups` of one task, of an operator with `count` groups.

    A log keeps the listing of its last look. Use one as long as nobody else writes its groups, else make a new one.
    """

    def __init__(self, files: StateFiles, groups: range, count: int) -> None:
        self._files = files
        self.groups = groups
        self._count = count
        self._known: list[_File] = []
        self._elsewhere: list[_File] = []
        self._removed_at = _NEVER
        self._takes_all = False

    def latest(self, before: int) -> int:
        """The newest version of any group before that number; -1 if there is none. Looks at the files again."""
        self._look()
        return max((file.version for file in self._known if file.version < before), default=_NEVER)

    def restore(self, before: int) -> Iterator[Sections]:
        """What makes the state as it is before micro-batch `before`: parts to apply in this order to nothing.

        Raises JobError CHECKPOINT_DAMAGED.
        """
        self._look()
        files = [file for file in self._known if file.version < before]
        self._takes_all = any(not self._is_inside(file) for file in files)
        since = dict.fromkeys((SHARED, *self.groups), _NEVER)
        for file in sorted((one for one in files if one.whole), key=_by_version, reverse=True):
            wanted = [group for group in (SHARED, *range(file.first, file.last + 1)) if since.get(group) == _NEVER]
            if wanted:
                sections = self._read(file)
                since.update(dict.fromkeys(wanted, file.version))
                yield {group: sections[group] for group in wanted if group in sections}
        yield from self._deltas(files, since)

    def can_follow(self, after: int, before: int) -> bool:
        """Whether the deltas from version `after` on are all there still. Looks at the files again."""
        latest = self.latest(before)
        return not self._has_foreign() and after <= latest and before - 1 - after <= MIN_KEPT_VERSIONS

    def follow(self, after: int, before: int) -> Iterator[Sections]:
        """What leads from version `after` to the newest one before `before`. Raises JobError CHECKPOINT_DAMAGED."""
        files = [file for file in self._known if file.version < before]
        return self._deltas(files, dict.fromkeys((SHARED, *self.groups), after))

    def keep(
        self, version: int, deltas: Sections, snapshot: Callable[[int], bytes], present: Sequence[int], *, shared: bytes
    ) -> None:
        """Write version `version`: what changed, and where it is time for it a snapshot of some groups.

        `snapshot` gives the whole state of a group or of SHARED, `present` are the groups that have any, in order.
        `shared` is the change of what all share.
        """
        if self._has_foreign():
            self._look()
        self._known = [file for file in self._known if file.version < version]
        self._remove_covered(version)
        if deltas or shared:
            sections = {SHARED: shared, **deltas} if shared else deltas
            self._write(version, self.groups[0], self.groups[-1], False, sections)
        if self._takes_all or self._has_grown():
            self._take_snapshot(version, sum(map(len, deltas.values())), snapshot, present)

    def take_all(self) -> None:
        """Let the next `keep` take a snapshot of all groups: what they are made of lies elsewhere."""
        self._takes_all = True

    def _take_snapshot(
        self, version: int, delta_bytes: int, snapshot: Callable[[int], bytes], present: Sequence[int]
    ) -> None:
        covered = self._newest_snapshots(version)[self.groups.start : self.groups.stop]
        first = self.groups[0] if self._takes_all else self.groups.start + int(np.argmin(covered))
        budget = float("inf") if self._takes_all else max(SNAPSHOT_BYTES, 2 * delta_bytes)
        sections: dict[int, bytes] = {SHARED: snapshot(SHARED)}
        last, size = self.groups[-1], 0
        for group in present:
            if group < first:
                continue
            sections[group] = snapshot(group)
            size += len(sections[group])
            if size >= budget:
                last = group
                break
        self._write(version, first, last, True, sections)
        self._takes_all = False

    def _has_grown(self) -> bool:
        """Whether a start would read more deltas than snapshots."""
        deltas = [file for file in self._known if not file.whole and self._is_inside(file)]
        if not deltas:
            return False
        covered = np.sort(self._newest_snapshots(_last(self._known) + 1)[self.groups.start : self.groups.stop])
        versions = np.array([file.version for file in deltas])
        sizes = np.array([file.size for file in deltas])
        # A delta counts for the share of the groups whose snapshot is older than it.
        share = np.searchsorted(covered, versions, "left") / len(covered)
        grown_bytes = float((sizes * share).sum())
        snapshot_bytes = sum(file.size for file in self._known if file.whole and self._is_inside(file))
        return int((share > 0).sum()) > MAX_DELTAS or grown_bytes > max(MIN_SNAPSHOT_BYTES, snapshot_bytes)

    def _newest_snapshots(self, before: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """For each group the newest snapshot before that version."""
        covered = np.full(self._count, _NEVER, np.int64)
        for file in sorted((*self._known, *self._elsewhere), key=_by_version):
            if file.whole and file.version < before:
                covered[file.first : file.last + 1] = file.version
        return covered

    def _remove_covered(self, version: int) -> None:
        """Remove what nobody needs who repeats micro-batch `version` or goes on behind it."""
        newest = max((file.version for file in self._known if file.whole), default=_NEVER)
        if newest <= self._removed_at and not self._has_foreign():
            return
        self._removed_at = newest
        covered = self._newest_snapshots(version)
        kept = []
        for file in self._known:
            oldest = int(covered[file.first : file.last + 1].min())
            # A snapshot of the same micro-batch has what a delta says; workers may still follow the last deltas.
            is_past = oldest > file.version if file.whole else oldest >= file.version
            if is_past and (file.whole or file.version < version - MIN_KEPT_VERSIONS):
                self._files.delete(file.name)
            else:
                kept.append(file)
        self._known = kept

    def _deltas(self, files: Sequence[_File], since: Mapping[int, int]) -> Iterator[Sections]:
        by_version: dict[int, dict[int, bytes]] = {}
        oldest = min(since.values())
        for file in sorted((one for one in files if not one.whole and one.version > oldest), key=_by_version):
            if by_version and file.version not in by_version:
                yield from by_version.values()
                by_version.clear()
            # Several files of a version are of tasks with other ranges, or of a repeated micro-batch.
            wanted = by_version.setdefault(file.version, {})
            for group, change in self._read(file).items():
                if file.version > since.get(group, file.version):
                    wanted[group] = change
        yield from by_version.values()

    def _look(self) -> None:
        self._known, self._elsewhere = [], []
        for name, size in self._files.sizes().items():
            parts = _NAME.fullmatch(name)
            if parts is None:
                continue
            file = _File(int(parts[1]), int(parts[2]), int(parts[3]), parts[4] == "groups", size)
            if file.first < self.groups.stop and file.last >= self.groups.start:
                self._known.append(file)
            elif file.whole:
                # It says whether files that reach into these groups are still needed by other tasks.
                self._elsewhere.append(file)

    def _is_inside(self, file: _File) -> bool:
        return file.first >= self.groups.start and file.last < self.groups.stop

    def _has_foreign(self) -> bool:
        return any(not self._is_inside(file) for file in self._known)

    def _write(self, version: int, first: int, last: int, whole: bool, sections: Sections) -> None:
        content = _encode(sections)
        file = _File(version, first, last, whole, len(content))
        self._files.write(file.name, content)
        self._known.append(file)

    def _read(self, file: _File) -> Sections:
        content = self._files.read(file.name)
        found = _decode(content)
        if found is None:
            raise JobError("CHECKPOINT_DAMAGED", f"The state file {file.name} in {self._files.location} is damaged.")
        return found


def _by_version(file: _File) -> tuple[int, str]:
    return file.version, file.name


def _last(files: Sequence[_File]) -> int:
    return max(file.version for file in files)


def _encode(sections: Sections) -> bytes:
    table = msgspec.msgpack.encode([(group, len(body)) for group, body in sections.items()])
    rest = b"".join((table, *sections.values()))
    checksum = zlib.crc32(rest, zlib.crc32(len(table).to_bytes(4, "little")))
    return _HEAD.pack(_MAGIC, checksum, len(table)) + rest


_TABLE: Final = msgspec.msgpack.Decoder(list[tuple[int, int]])


def _decode(content: bytes) -> Sections | None:
    """The sections of a file; None if it is damaged."""
    if len(content) < _HEAD.size:
        return None
    magic, checksum, table_size = _HEAD.unpack_from(content)
    if magic not in _MAGICS or checksum != zlib.crc32(memoryview(content)[_CHECKED_FROM:]):
        return None
    start = _HEAD.size + table_size
    sections = {}
    for group, size in _TABLE.decode(content[_HEAD.size : start]):
        sections[group] = content[start : start + size]
        start += size
    return sections
