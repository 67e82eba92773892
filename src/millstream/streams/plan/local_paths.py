"""The paths of tables of files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from millstream.streams.errors import JobError

__all__ = ["local_directory"]


def local_directory(path: str) -> Path:
    """The directory of a path or a file: URL. Raises JobError SINK_FAILED for another URL."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in path:
        raise JobError("SINK_FAILED", f"{path!r} is no local directory.", remedy="Use a path or a file: URL.")
    return Path(path)
