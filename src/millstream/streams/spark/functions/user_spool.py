"""The spool for failed calls of users' functions: workers leave them, the driver takes them at the batch's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millstream.streams.functions.failed_calls import FailedCall
from millstream.streams.state.atomic_file import write_file

__all__ = ["CallSpool", "SpooledCall"]

_SUFFIX = ".calls"


class SpooledCall(msgspec.Struct, frozen=True):
    """A failed call of `stage`, and the row that it was made for as JSON; blank where that goes nowhere.

    `ends` says that the job ends, whatever its settings say of calls.
    """

    stage: str
    call: FailedCall
    row: bytes = b""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class CallSpool:
    """The directory; a repeated micro-batch writes the same files again."""

    directory: str

    def keep(self, name: str, calls: Sequence[SpooledCall]) -> None:
        """Leave the failed calls of one piece of work, which `name` tells from all others of the micro-batch."""
        if calls:
            write_file(Path(self.directory) / f"{name}{_SUFFIX}", msgspec.msgpack.encode(calls), durable=False)

    def take(self) -> list[SpooledCall]:
        """What was left, in a fixed order; it is removed."""
        found: list[SpooledCall] = []
        for file in sorted(Path(self.directory).glob(f"[!.]*{_SUFFIX}")):
            found += msgspec.msgpack.decode(file.read_bytes(), type=list[SpooledCall])
            file.unlink()
        return found
