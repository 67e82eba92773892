"""A directory mirrored to another place file by file, and restorable from it.

What is sent are blocks of files of up to 1 MiB, each under the digest of its content, so that nothing that is there is
ever changed. Then one record, `head`, is put in the place of the one before: it names the files of one moment with
their blocks. So the reader the head finds all of that moment, whenever the sender died. Blocks that the newest head
does not name are deleted after it.

`head` is JSON packed with zlib: `format` 1, `owner` (who sent it), `note` (what the sender wants to remember of the
moment) and `files`, or `blocks` of them where they are many. A file is its content in base64 where that is small
and new, else its size and blocks.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from millstream.streams.errors import JobError
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.state_files import StateFiles

__all__ = ["Head", "MirroredDirectory", "Moment"]

BLOCK_BYTES: Final = 1024 * 1024
"""Bytes of a block that is sent of a file."""

SMALL_FILE_BYTES: Final = 4096
"""Files of at most so many bytes may stand in the head itself."""

MAX_SMALL_BYTES: Final = 64 * 1024
"""Bytes of small files that stand in the head: the newest ones, for each head is sent whole. Others are blocks."""

MAX_INLINE_BYTES: Final = 512 * 1024
"""Bytes of packed names of files that stand in the head itself; more of them are blocks of their own."""

_HEAD: Final = "head"
_FORMAT: Final = 1
_DIGEST_BYTES: Final = 16


class _File(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file: `small` is its content, or it has `size` bytes in `blocks`."""

    small: bytes | None = None
    size: int = 0
    blocks: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    format: int
    owner: str
    note: dict[str, int | bool]
    files: dict[str, _File] | None = None
    blocks: tuple[str, ...] = ()


class Head(msgspec.Struct, frozen=True):
    """The newest moment of a directory in its second place: who sent it, and what was to be remembered of it."""

    owner: str
    note: dict[str, int | bool]
    files: dict[str, _File]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as a listing saw it; `content` of a small one."""

    path: Path
    signature: tuple[int, int, int]
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Moment:
    """The files of a directory as they were at one moment."""

    files: Mapping[str, _Seen] = field(default_factory=dict)


class MirroredDirectory:
    """`directory`, and its copy in `place`. `matters` says of the paths of files, relative to it, which are copied.

    One object at a time writes to a place; it reads the listing there once.
    """

    def __init__(self, directory: Path, place: StateFiles, matters: Callable[[str], bool]) -> None:
        self._directory = directory
        self._place = place
        self._matters = matters
        self._there: set[str] | None = None
        self._sent: dict[str, tuple[tuple[int, int, int], _File]] = {}
        self._named: frozenset[str] = frozenset()

    def head(self) -> Head | None:
        """The newest moment in the place; None if there is none. Raises OSError, and JobError CHECKPOINT_DAMAGED."""
        try:
            packed = self._place.read(_HEAD)
        except FileNotFoundError:
            return None
        try:
            record = msgspec.json.decode(zlib.decompress(packed), type=_Record)
            files = record.files
            if files is None:
                names = b"".join(map(self._block, record.blocks))
                files = msgspec.json.decode(zlib.decompress(names), type=dict[str, _File])
        except (zlib.error, msgspec.DecodeError) as error:
            raise self._damage(_HEAD) from error
        if record.format != _FORMAT:
            raise self._damage(_HEAD)
        return Head(record.owner, record.note, files)

    def content(self, head: Head, name: str) -> bytes:
        """A file of that moment. Raises OSError, and JobError CHECKPOINT_DAMAGED also where it has no such file."""
        file = head.files.get(name)
        if file is None:
            raise self._damage(name)
        return file.small if file.small is not None else b"".join(map(self._block, file.blocks))

    def bring_back(self, head: Head, but: str) -> None:
        """Put the files of that moment into the directory, all but one, and remove what lies there before.

        Raises OSError, and JobError CHECKPOINT_DAMAGED.
        """
        for path in sorted(self._directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, file in head.files.items():
            if name == but:
                continue
            path = self._directory / name
            if not path.resolve().is_relative_to(self._directory.resolve()):
                raise self._damage(name)
            if file.small is not None:
                write_file(path, file.small, durable=False)
                continue
            unfinished = path.with_name(f".{path.name}.tmp")
            unfinished.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as out:
                for block in file.blocks:
                    out.write(self._block(block))
            if unfinished.stat().st_size != file.size:
                raise self._damage(name)
            unfinished.rename(path)

    def look(self) -> Moment:
        """The files as they are now. Call it while nobody writes those that are to fit together."""
        found = {}
        for path in self._directory.rglob("*"):
            name = path.relative_to(self._directory).as_posix()
            if path.name.startswith(".") or not self._matters(name):
                continue
            try:
                seen = path.stat()
                if not path.is_file():
                    continue
                content = path.read_bytes() if seen.st_size <= SMALL_FILE_BYTES else None
            except FileNotFoundError:
                # Spark removes old files of its log by itself.
                continue
            found[name] = _Seen(path, (seen.st_size, seen.st_mtime_ns, seen.st_ino), content)
        room_bytes = MAX_SMALL_BYTES
        for name, file in sorted(found.items(), key=lambda one: one[1].signature[1], reverse=True):
            if file.content is not None:
                room_bytes -= len(file.content)
                if room_bytes < 0:
                    found[name] = replace(file, content=None)
        return Moment(found)

    def send(self, moment: Moment) -> bool:
        """Whether all blocks of the files of that moment are in the place; False if one has changed since.

        Raises OSError.
        """
        for name, seen in moment.files.items():
            known = self._sent.get(name)
            if seen.content is not None or (known is not None and known[0] == seen.signature):
                continue
            try:
                blocks = tuple(self._put(content) for content in _blocks_of(seen.path))
                after = seen.path.stat()
            except FileNotFoundError:
                return False
            if (after.st_size, after.st_mtime_ns, after.st_ino) != seen.signature:
                return False
            self._sent[name] = seen.signature, _File(size=after.st_size, blocks=blocks)
        return True

    def name(self, moment: Moment, owner: str, note: Mapping[str, int | bool]) -> None:
        """Let that moment, whose blocks were sent, be the newest one. Raises OSError."""
        self._sent = {name: sent for name, sent in self._sent.items() if name in moment.files}
        files = {
            name: self._sent[name][1] if seen.content is None else _File(small=seen.content)
            for name, seen in moment.files.items()
        }
        named = {block for file in files.values() for block in file.blocks}
        record = _Record(_FORMAT, owner, dict(note), files)
        packed = zlib.compress(msgspec.json.encode(record), 1)
        if len(packed) > MAX_INLINE_BYTES:
            names = zlib.compress(msgspec.json.encode(files), 1)
            blocks = tuple(self._put(names[at : at + BLOCK_BYTES]) for at in range(0, len(names), BLOCK_BYTES))
            named.update(blocks)
            packed = zlib.compress(msgspec.json.encode(_Record(_FORMAT, owner, dict(note), None, blocks)), 1)
        self._place.write(_HEAD, packed)
        self._named = frozenset(named)

    def sweep(self) -> None:
        """Delete the blocks that the moment named last does not need. Call it when one was named. Raises OSError."""
        there = self._blocks_there()
        for name in sorted(there - self._named):
            self._place.delete(name)
            there.discard(name)
        self._sent = {name: sent for name, sent in self._sent.items() if self._named.issuperset(sent[1].blocks)}

    def _put(self, content: bytes) -> str:
        name = _digest(content)
        there = self._blocks_there()
        if name not in there:
            self._place.write(name, content)
            there.add(name)
        return name

    def _blocks_there(self) -> set[str]:
        if self._there is None:
            self._there = set(self._place.sizes()) - {_HEAD}
        return self._there

    def _block(self, name: str) -> bytes:
        try:
            content = self._place.read(name)
        except FileNotFoundError as error:
            raise self._damage(name) from error
        if _digest(content) != name:
            raise self._damage(name)
        return content

    def _damage(self, name: str) -> JobError:
        return JobError("CHECKPOINT_DAMAGED", f"{name} of the state in {self._place.location} is damaged or missing.")


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while content := file.read(BLOCK_BYTES):
            yield content


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
