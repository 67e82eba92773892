"""Code of users for the workers of a cluster: directories of modules become archives that Spark gives to them."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import millstream
from millstream.streams.errors import JobError

__all__ = ["MAX_SHIPPED_BYTES", "archive_of", "ship"]

MAX_SHIPPED_BYTES: Final = 64 * 1024 * 1024
"""What one directory of modules may have in files, before they are packed."""

_LEFT_OUT = ("__pycache__", "node_modules")


def ship(session: SparkSession, directories: Iterable[Path]) -> None:
    """Let the session's workers import what lies in the directories, and this package. Raises JobError JOB_FAILED."""
    own = Path(millstream.__file__).parent
    context = session.sparkContext
    scratch = Path(tempfile.mkdtemp(prefix="millstream-code-", dir=context.getConf().get("spark.local.dir")))
    context.addPyFile(str(archive_of(own, scratch, inside=own.name)))
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        context.addPyFile(str(archive_of(directory, scratch)))


def archive_of(directory: Path, scratch: Path, *, inside: str = "") -> Path:
    """An archive in `scratch` of the files of a directory, below `inside`; without hidden ones and caches.

    Raises JobError JOB_FAILED for a directory that is not there, or has more than `MAX_SHIPPED_BYTES`.
    """
    if not directory.is_dir():
        raise JobError("JOB_FAILED", f"The code in {directory} cannot be shipped: it is no directory.", remedy="")
    name = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    archive, size_bytes = scratch / f"{directory.name or 'code'}-{name}.zip", 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in _files(directory):
            size_bytes += file.stat().st_size
            if size_bytes > MAX_SHIPPED_BYTES:
                message = f"The code in {directory} has more than {MAX_SHIPPED_BYTES // 1024 // 1024} MiB."
                raise JobError("JOB_FAILED", message, remedy="Put the modules into a directory without data.")
            packed.write(file, str(Path(inside) / file.relative_to(directory)))
    return archive


def _files(directory: Path) -> Iterator[Path]:
    for file in sorted(directory.rglob("*")):
        parts = file.relative_to(directory).parts
        if file.is_file() and not any(part.startswith(".") or part in _LEFT_OUT for part in parts):
            yield file
