"""Data directories and checkpoints that earlier versions of the code have written, packed in `tests/data`.

`broker-N.tar.xz` is made by `tools/keep_broker_data.py`, `jobs-N.tar.xz` by `tools/keep_job_checkpoints.py`. An archive
is never made again: whoever changes a format adds one with the next number, and the tests open all of them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

from millstream.broker.broker import BrokerOptions
from millstream.store.message_store import StoreOptions
from millstream.store.retention import RetentionPolicy

__all__ = ["EXPECTED_FILE", "KEPT", "KEPT_OPTIONS", "kept_archives", "next_archive", "pack", "unpack"]

KEPT: Final = Path(__file__).parent / "data"

EXPECTED_FILE: Final = "expected.json"
"""In each archive: what a test must find in what the archive holds."""

KEPT_OPTIONS: Final = BrokerOptions(
    # With other sizes a start makes the files of queues again and reads none. Messages are years old in a test.
    store=StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=100, retention=RetentionPolicy(keep_ms=1 << 45))
)


def kept_archives(kind: str) -> list[Path]:
    """The archives of a kind, `broker` or `jobs`, oldest first."""
    return sorted(KEPT.glob(f"{kind}-*.tar.xz"), key=_number)


def next_archive(kind: str) -> Path:
    """Where the next archive of a kind is to lie."""
    return KEPT / f"{kind}-{max(map(_number, kept_archives(kind)), default=0) + 1}.tar.xz"


def pack(directory: Path, archive: Path) -> None:
    """Pack what the directory holds."""
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(directory.iterdir()):
            packed.add(path, path.name, filter=_without_owner)


def unpack(archive: Path, directory: Path) -> Path:
    """Unpack an archive; the directory."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory


def _number(archive: Path) -> int:
    return int(archive.name.removesuffix(".tar.xz").rpartition("-")[2])


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
