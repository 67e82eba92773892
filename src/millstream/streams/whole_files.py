"""Files that are whole or not there: who reads, also after a process was killed, finds what was there or all of it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["put"]


def put(file: Path, content: bytes, *, synced: bool = False) -> None:
    """Put `content` in the place of `file`, whose directory is made; where `synced`, it outlives the machine's crash.

    What a process that was killed has not finished begins with a dot and ends with its number. Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    with unfinished.open("wb") as out:
        out.write(content)
        if synced:
            out.flush()
            os.fsync(out.fileno())
    unfinished.replace(file)
