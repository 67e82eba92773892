"""A limit for the memory of a process, which the system keeps where it lets us make a control group."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["MemoryCap"]

_VERSION_1: Final = Path("/sys/fs/cgroup/memory")
_VERSION_2: Final = Path("/sys/fs/cgroup")


class MemoryCap:
    """Use it as a context manager. `through` are the words before a command that is to have no more memory than that;
    none where there are no control groups, as on most machines of which we are not the root."""

    def __init__(self, limit_bytes: int) -> None:
        self.through: tuple[str, ...] = ()
        self._limit_bytes = limit_bytes
        self._group: Path | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the system kills what takes more."""
        return self._group is not None

    def __enter__(self) -> Self:
        is_first = (_VERSION_1 / "memory.limit_in_bytes").exists()
        group = (_VERSION_1 if is_first else _VERSION_2) / f"millstream-crash-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            return self
        try:
            (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(self._limit_bytes))
        except OSError:
            group.rmdir()
            return self
        self._group = group
        self.through = ("sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "capped")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group is not None:
            with suppress(OSError):
                self._group.rmdir()
