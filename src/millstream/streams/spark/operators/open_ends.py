"""What buckets of operators keep until the watermark passes its end: left by workers, added up by the driver."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from millstream.streams.operators.state import OpenEnds
from millstream.streams.state.atomic_file import write_file

__all__ = ["OpenEndsSpool"]

_SUFFIX = ".open"
_DECODER = msgspec.msgpack.Decoder(OpenEnds)


class OpenEndsSpool:
    """The directory; a micro-batch writes one file for each bucket of an operator that waits for ends."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def keep(self, operator: str, bucket: int, ends: OpenEnds) -> None:
        """Leave what a bucket has open after a micro-batch."""
        write_file(self._directory / f"{operator}-{bucket}{_SUFFIX}", msgspec.msgpack.encode(ends), durable=False)

    def take(self) -> dict[str, OpenEnds]:
        """What each operator has open in all its buckets."""
        found: dict[str, OpenEnds] = {}
        for path in sorted(self._directory.glob(f"[!.]*{_SUFFIX}")):
            operator = path.name.removesuffix(_SUFFIX).rpartition("-")[0]
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found[operator] = _DECODER.decode(path.read_bytes()).with_more(found.get(operator, OpenEnds()))
        return found
