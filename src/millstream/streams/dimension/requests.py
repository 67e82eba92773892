"""Someone's wish that a dimension table is loaded again, kept beside it until a job grants it."""

from __future__ import annotations

from pathlib import Path

from millstream.streams.state.atomic_file import write_file

__all__ = ["ReloadRequest"]


class ReloadRequest:
    """The newest wish for the table in `directory`. A version whose load began after it has granted it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "reload"

    def request(self, time_ms: int) -> None:
        """Wish for a version that is loaded from now on. Raises OSError."""
        write_file(self._path, b"%d" % time_ms)

    def time_ms(self) -> int | None:
        """When that was; None where nobody ever wished."""
        try:
            text = self._path.read_text()
        except OSError:
            return None
        return int(text) if text.isdigit() else None
