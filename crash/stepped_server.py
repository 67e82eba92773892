"""Runs a command of the product whose wall clock is ahead by what a file says, or behind.

As `python -m crash.stepped_server CLOCK_FILE python -m millstream WORDS ...`: the words of a command follow those that
run it through this module.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from typing import Final

__all__ = ["SteppedWall", "ahead_by"]

_AHEAD: Final = struct.Struct("<q")
_OWN_WORDS: Final = 5
"""The module's name, the file, and the three words `python -m millstream`."""


class SteppedWall:
    """The milliseconds by which the clocks of all processes of one file are ahead."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            file.write_bytes(_AHEAD.pack(0))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _AHEAD.size)

    @property
    def ahead_ms(self) -> int:
        """By how much they are ahead now."""
        return int(_AHEAD.unpack_from(self._shared)[0])

    @ahead_ms.setter
    def ahead_ms(self, value: int) -> None:
        _AHEAD.pack_into(self._shared, 0, value)


def ahead_by(wall: SteppedWall) -> None:
    """Have the product's own clock in this process go by the file."""
    from millstream.model.clock import SystemClock

    unstepped = SystemClock.now_ms
    # A method of its class is replaced on purpose: the product has no setting for this.
    setattr(SystemClock, "now_ms", lambda clock: unstepped(clock) + wall.ahead_ms)  # noqa: B010


if __name__ == "__main__":
    ahead_by(SteppedWall(Path(sys.argv[1])))
    from millstream.cli.main import main

    sys.exit(main(sys.argv[_OWN_WORDS:]))
