"""The format of a data directory: the file `format` with the line `millstream-store N CRC32`.

It is looked at before anything else is touched, so a directory of a later release is refused as it is. A damaged line
says nothing and is written again: the files below have versions and checksums of their own.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from zlib import crc32

from millstream.model.errors import StoreError
from millstream.store.files import FileLayer

__all__ = ["FORMAT_VERSION", "check_format", "write_format"]

FORMAT_VERSION = 1

_FILE_NAME = "format"
_LINE = re.compile(rb"(millstream-store (\d{1,9})) ([0-9a-f]{8})\n")

_log = logging.getLogger(__name__)


def check_format(directory: Path, files: FileLayer) -> None:
    """Refuse a directory of another format: STORE_FORMAT. One without the file is of the first format or new."""
    version = _noted_version(directory / _FILE_NAME, files)
    if version not in (None, FORMAT_VERSION):
        raise StoreError(
            "STORE_FORMAT", f"The data in {directory} is of format {version}; this release reads {FORMAT_VERSION}."
        )


def write_format(directory: Path, files: FileLayer) -> None:
    """Note the format where it is not noted yet."""
    path = directory / _FILE_NAME
    if _noted_version(path, files) is None:
        if files.exists(path):
            _log.warning("%s is damaged and is written again.", path)
        marker = b"millstream-store %d" % FORMAT_VERSION
        files.replace(path, b"%b %08x\n" % (marker, crc32(marker)))


def _noted_version(path: Path, files: FileLayer) -> int | None:
    if not files.exists(path):
        return None
    line = _LINE.fullmatch(files.read_all(path))
    return int(line[2]) if line is not None and int(line[3], 16) == crc32(line[1]) else None
