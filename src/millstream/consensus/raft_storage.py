"""The files of one Raft member, in one directory.

vote         the term, and for whom the member voted in it
snapshot     the state after an entry; all entries up to it are gone from the log
entries      the log: batches of entries, each of which was on the disk before the next one was written

A batch is `MSRAFT` | uint32 CRC-32 of what follows | uint32 length of the rest | uint64 index of its first entry |
MessagePack of its entries; big-endian. A batch that is not whole is the last write before a crash: nobody was told of
it, so it is cut off. One with a whole batch behind it is damage, and the member must not vote by such a log.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

import msgspec

from millstream.consensus.entry_log import EntryLog
from millstream.consensus.raft import HardState, InstalledSnapshot
from millstream.consensus.raft_messages import Entry
from millstream.model.errors import StoreError
from millstream.store.files import FileLayer, refusal_name
from millstream.store.snapshot import Snapshot

__all__ = ["PersistedState", "RaftFiles", "RaftStorage"]

_MARK: Final = b"MSRAFT"
_HEAD: Final = struct.Struct(">6sIIQ")
_CHECKED_FROM: Final = 10  # behind mark and checksum
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode


class _VoteDocument(msgspec.Struct):
    version: int
    term: int
    voted_for: str | None


class _SnapshotDocument(msgspec.Struct):
    version: int
    index: int
    term: int
    state: bytes


@dataclass(slots=True)
class PersistedState:
    """What a start finds."""

    hard_state: HardState
    log: EntryLog
    snapshot: bytes | None


class RaftStorage(Protocol):
    """Keeps a member's state. Each call returns when it is on the disk; all raise STORE_FAILED, DISK_FULL."""

    def load(self) -> PersistedState:
        """What was kept. Raises STORE_FORMAT where it cannot be read."""
        ...

    def save_vote(self, hard_state: HardState) -> None:
        """Replace term and vote."""
        ...

    def save_snapshot(self, snapshot: InstalledSnapshot, following: Sequence[Entry]) -> None:
        """Keep the snapshot, and in the log only the entries that follow it."""
        ...

    def rewrite(self, first_index: int, entries: Sequence[Entry]) -> None:
        """Have these entries alone in the log: a crash leaves the old ones or these."""
        ...

    def append(self, first_index: int, entries: Sequence[Entry]) -> None:
        """Add entries behind the last one."""
        ...


class RaftFiles:
    """The storage in `directory`, which the caller has locked."""

    def __init__(self, directory: Path, files: FileLayer | None = None) -> None:
        self._directory = directory
        self._files = files or FileLayer()
        self._path = directory / "entries"
        self._vote = Snapshot(directory / "vote", self._files)
        self._snapshot = Snapshot(directory / "snapshot", self._files)
        self._size_bytes = 0

    def load(self) -> PersistedState:
        vote = self._vote.load()
        snapshot = self._snapshot.load()
        try:
            voted = None if vote is None else msgspec.json.decode(vote, type=_VoteDocument)
            kept = None if snapshot is None else msgspec.msgpack.decode(snapshot, type=_SnapshotDocument)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"The files in {self._directory} cannot be read: {error}.") from None
        log = EntryLog() if kept is None else EntryLog(kept.index, kept.term)
        self._read_log(log)
        hard_state = HardState() if voted is None else HardState(voted.term, voted.voted_for)
        return PersistedState(hard_state, log, None if kept is None else kept.state)

    def save_vote(self, hard_state: HardState) -> None:
        document = _VoteDocument(1, hard_state.term, hard_state.voted_for)
        with _refusals("term and vote"):
            self._vote.save(msgspec.json.encode(document))

    def save_snapshot(self, snapshot: InstalledSnapshot, following: Sequence[Entry]) -> None:
        document = _SnapshotDocument(1, snapshot.index, snapshot.term, snapshot.state)
        with _refusals("snapshot"):
            self._snapshot.save(msgspec.msgpack.encode(document))
        # A crash before this leaves entries that the snapshot holds too; a start passes over them.
        self.rewrite(snapshot.index + 1, following)

    def rewrite(self, first_index: int, entries: Sequence[Entry]) -> None:
        content = _batch(first_index, entries) if entries else b""
        with _refusals("log"):
            self._files.make_directory(self._directory)
            self._files.replace(self._path, content)
        self._size_bytes = len(content)

    def append(self, first_index: int, entries: Sequence[Entry]) -> None:
        content = _batch(first_index, entries)
        is_new = not self._files.exists(self._path)
        with _refusals("log"):
            self._files.make_directory(self._directory)
            with self._files.open_descriptor(self._path, create=True) as descriptor:
                self._files.pwrite(descriptor, content, self._size_bytes)
                self._files.fsync(descriptor)
            if is_new:
                self._files.sync_directory(self._directory)
        self._size_bytes += len(content)

    def _read_log(self, log: EntryLog) -> None:
        """Add the entries of the file that follow the snapshot, and cut off a torn end."""
        if not self._files.exists(self._path):
            return
        content = self._files.read_all(self._path)
        end = 0
        for first_index, entries, batch_end in _batches(content):
            end = batch_end
            if first_index > log.last_index + 1:
                raise self._damage(f"entries {log.last_index + 1} to {first_index - 1} are missing")
            log.append(entries[log.last_index + 1 - first_index :])
        if end < len(content):
            if _holds_batch(content, end + 1):
                raise self._damage(f"the bytes at {end} are no batch of entries, but a batch follows")
            with self._files.open_descriptor(self._path) as descriptor:
                self._files.truncate(descriptor, end)
                self._files.fsync(descriptor)
        self._size_bytes = end

    def _damage(self, what: str) -> StoreError:
        return StoreError(
            "STORE_FORMAT",
            f"The log of the controllers in {self._path} is damaged: {what}.",
            remedy="Give this controller an empty directory, but only while all the others run and one of them leads.",
        )


def _batch(first_index: int, entries: Sequence[Entry]) -> bytes:
    body = _encode(entries)
    head = _HEAD.pack(_MARK, 0, len(body), first_index)
    checksum = crc32(body, crc32(head[_CHECKED_FROM:]))
    return _HEAD.pack(_MARK, checksum, len(body), first_index) + body


def _batches(content: bytes) -> Iterator[tuple[int, list[Entry], int]]:
    """The whole batches from the beginning on: the index of each one's first entry, its entries, where it ends."""
    position = 0
    while (found := _batch_at(content, position)) is not None:
        yield found
        position = found[2]


def _batch_at(content: bytes, position: int) -> tuple[int, list[Entry], int] | None:
    if len(content) < position + _HEAD.size:
        return None
    mark, checksum, length, first_index = _HEAD.unpack_from(content, position)
    begin = position + _HEAD.size
    body = content[begin : begin + length]
    checked = content[position + _CHECKED_FROM : begin]
    if mark != _MARK or len(body) < length or crc32(body, crc32(checked)) != checksum:
        return None
    return first_index, _decode(body), begin + length


def _holds_batch(content: bytes, begin: int) -> bool:
    """Whether a whole batch begins anywhere from there on."""
    position = content.find(_MARK, begin)
    while position >= 0:
        if _batch_at(content, position) is not None:
            return True
        position = content.find(_MARK, position + 1)
    return False


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = refusal_name(error, "STORE_FAILED")
        raise StoreError(name, f"The {what} of the controller cannot be saved: {error}.") from error
