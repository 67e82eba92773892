"""State files in a place that pyarrow reaches: an object store, HDFS, or a directory.

Addresses are those of `pyarrow.fs.FileSystem.from_uri`. Keys of access come from the environment of each process, in
the way of each store (for S3 AWS_ACCESS_KEY_ID and so on); an address that holds some is refused.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlsplit

from millstream.streams.errors import JobError
from millstream.streams.state.unreachable import StateDenied, StateUnreachable, try_again

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["ArrowStateFiles", "open_place"]

_Result = TypeVar("_Result")

_SCHEMES: Final = ("file", "s3", "gs", "gcs", "hdfs", "viewfs")
_NEVER_REPLACING: Final = ("hdfs", "viewfs")
"""File systems that do not move a file to the place of another one."""

_SHOWING_PARTS: Final = ("local", *_NEVER_REPLACING)
"""File systems that show a file while it is written; an object is there once it is whole."""

_BEFORE: Final = ".before"
"""The end of the name of a file that was replaced where files cannot be."""

_DENIED: Final = re.compile(
    r"ACCESS_DENIED|AccessDenied|NO_SUCH_BUCKET|NoSuchBucket|InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|"
    r"SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH|No AWS credentials|HTTP (?:response code|status) (?:401|403)|"
    r"Permission denied|PERMISSION_DENIED|libjvm|libhdfs"
)
_DENIED_NUMBERS: Final = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.EROFS})
_CAUSE_CHARACTERS: Final = 300

_REMEDY: Final = "Is it running, and is the address right?"
_DENIED_REMEDY: Final = (
    "Make the bucket or directory, and let the job list, read, write and delete there; its keys of access are those of "
    "the environment of the driver and of each worker."
)


def open_place(location: str) -> tuple[FileSystem, str]:
    """The file system of an address, and the path in it. Raises OSError, and ValueError for no such address."""
    # Not at the top: what reaches a store must not be there before a worker is forked.
    from pyarrow import fs

    if location.startswith("s3:"):
        # A file is one request then, not three.
        location += ("&" if "?" in location else "?") + "allow_delayed_open=true"
    opened: tuple[FileSystem, str] = fs.FileSystem.from_uri(location)
    return opened


_opened: dict[tuple[int, str], tuple[FileSystem, str]] = {}
"""What this process has opened, by its number: a store's client does not live on in a fork."""


@dataclass(frozen=True, slots=True)
class ArrowStateFiles:
    """The files below the address `location`, which is an absolute path or `scheme://...`.

    A call is tried again for some seconds (`ATTEMPTS`), then it raises StateUnreachable; StateDenied where trying does
    not help.
    """

    location: str
    open_place: Callable[[str], tuple[FileSystem, str]] = open_place
    pause: Callable[[float], None] = field(default=time.sleep, compare=False)

    @classmethod
    def at(cls, location: str) -> ArrowStateFiles:
        """The files below an address as a user writes it. Raises JobError STATE_DENIED for one that is none."""
        parts = urlsplit(location)
        if "@" in parts.netloc:
            words = f"The address of the state names a user or keys of access: {parts.scheme}://...@..."
            raise JobError("STATE_DENIED", words, remedy="Put them into the environment, where nobody shows them.")
        if not location.startswith("/") and (parts.scheme not in _SCHEMES or not (parts.netloc or parts.path)):
            words = f"State cannot lie in {location!r}."
            remedy = "Write an absolute path, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or hdfs://HOST:PORT/PATH."
            raise JobError("STATE_DENIED", words, remedy=remedy)
        return cls(location)

    def within(self, *names: str) -> ArrowStateFiles:
        """The files of a directory below this one."""
        path, mark, options = self.location.partition("?")
        below = "/".join((path.rstrip("/"), *(quote(name, safe="") for name in names)))
        return ArrowStateFiles(f"{below}{mark}{options}", self.open_place, self.pause)

    def probe(self) -> None:
        """Write, list, read and delete a file. Raises StateUnreachable if one of that cannot be done."""
        name, content = f"probe.{uuid.uuid4().hex}", b"whether state can lie here"
        self.write(name, content)
        if name not in self.sizes() or self.read(name) != content:
            raise StateDenied(self.location, name, "It was written and is not there.", _REMEDY)
        self.delete(name)

    def sizes(self) -> dict[str, int]:
        from pyarrow import fs

        def look() -> dict[str, int]:
            system, path = self._open()
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
            # What begins with a dot is not whole yet.
            return {one.base_name: one.size for one in found if one.is_file and not one.base_name.startswith(".")}

        return self._call("", look)

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            system, path = self._open()
            try:
                return _content_of(system, f"{path}/{name}")
            except FileNotFoundError:
                if system.type_name not in _NEVER_REPLACING:
                    raise
                return _content_of(system, f"{path}/.{name}{_BEFORE}")

        return self._call(name, read)

    def write(self, name: str, content: bytes) -> None:
        self._call(name, lambda: self._write(name, content))

    def delete(self, name: str) -> None:
        def delete() -> None:
            system, path = self._open()
            with suppress(FileNotFoundError):
                system.delete_file(f"{path}/{name}")
            if system.type_name in _NEVER_REPLACING:
                with suppress(FileNotFoundError):
                    system.delete_file(f"{path}/.{name}{_BEFORE}")

        self._call(name, delete)

    def _write(self, name: str, content: bytes) -> None:
        system, path = self._open()
        if system.type_name not in _SHOWING_PARTS:
            with system.open_output_stream(f"{path}/{name}") as file:
                file.write(content)
            return
        system.create_dir(path, recursive=True)
        unfinished, before = f"{path}/.{name}.{uuid.uuid4().hex}", f"{path}/.{name}{_BEFORE}"
        with system.open_output_stream(unfinished) as file:
            file.write(content)
        if system.type_name in _NEVER_REPLACING and _is_there(system, f"{path}/{name}"):
            # Whoever reads between the two steps finds the old one under its other name.
            with suppress(FileNotFoundError):
                system.delete_file(before)
            system.move(f"{path}/{name}", before)
        system.move(unfinished, f"{path}/{name}")

    def _open(self) -> tuple[FileSystem, str]:
        key = os.getpid(), self.location
        found = _opened.get(key)
        if found is None or self.open_place is not open_place:
            system, path = self.open_place(self.location)
            found = _opened[key] = system, path.rstrip("/")
        return found

    def _call(self, name: str, call: Callable[[], _Result]) -> _Result:
        return try_again(call, lambda error: self._explain(name, error), self.pause)

    def _explain(self, name: str, error: Exception) -> StateUnreachable:
        if not isinstance(error, OSError):
            # No address, or no such option in it.
            return StateDenied(self.location, name, _short(error), _DENIED_REMEDY)
        if error.errno in _DENIED_NUMBERS or _DENIED.search(str(error)) is not None:
            return StateDenied(self.location, name, _short(error), _DENIED_REMEDY)
        return StateUnreachable(self.location, name, _short(error), _REMEDY)


def _content_of(system: FileSystem, path: str) -> bytes:
    with system.open_input_file(path) as file:
        content: bytes = file.read()
    return content


def _is_there(system: FileSystem, path: str) -> bool:
    (found,) = system.get_file_info([path])
    return bool(found.is_file)


def _short(error: Exception) -> str:
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return line if len(line) <= _CAUSE_CHARACTERS else f"{line[:_CAUSE_CHARACTERS]} ..."
