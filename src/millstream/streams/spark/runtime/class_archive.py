"""The classes of Java that a Spark session loads, archived: with them a start takes less than half its processor time.

Java writes such an archive when a process ends that was asked to, and maps it in all later ones. It looks by itself
whether an archive is of the same Java and the same jars; one that is not, or is damaged, is passed over in silence.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from millstream.streams.caches import cache_directory

__all__ = ["ARCHIVES_VARIABLE", "KEPT_ARCHIVES", "ClassArchive", "archive_directory", "find_archive"]

ARCHIVES_VARIABLE: Final = "MILLSTREAM_CLASS_ARCHIVES"
"""The environment's name of the directory of archives; `off` does without."""

KEPT_ARCHIVES: Final = 1
"""Archives of each version of Spark; one has about 160 MB. That of another Java or directory gives way to a new one."""

_UNFINISHED_S: Final = 900
"""No process writes an archive for so long."""

_BASE = Path("lib") / "server" / "classes.jsa"
"""Java's archive of its own classes, which ours adds to; a Java without it can neither write nor read ours."""

_QUIET: Final = ("-Xlog:cds*=off", "-Xlog:cds+dynamic*=off")
"""Java prints each class that it cannot archive, and warns of an archive that it passes over."""


_KEEP: Final = """unfinished=$1 archive=$2; shift 2; "$@"; code=$?
if [ $code = 0 ]; then mv -f "$unfinished" "$archive"; else rm -f "$unfinished"; fi 2>/dev/null
exit $code"""
"""Runs a Java that writes an archive; only that of one which ended well gets the name under which it is found."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The file of one Java and one Spark, whether it is there or not; what is to be run so that it is used or made."""

    path: Path

    def is_made(self) -> bool:
        """Whether it is there."""
        return self.path.is_file()

    def reading(self) -> tuple[str, ...]:
        """The options of a Java that maps it."""
        return (f"-XX:SharedArchiveFile={self.path}", *_QUIET)

    def writing(self) -> tuple[str, ...]:
        """The options of a Java that writes it when it ends, behind the words of `keeping`."""
        return (f"-XX:ArchiveClassesAtExit={self._unfinished}", *_QUIET)

    def keeping(self) -> tuple[str, ...]:
        """The words before a Java that writes it, as of `env`."""
        return ("sh", "-c", _KEEP, "sh", self._unfinished, str(self.path))

    @property
    def _unfinished(self) -> str:
        """Of this process alone."""
        return f"{self.path}.{os.getpid()}"


def archive_directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where archives are: MILLSTREAM_CLASS_ARCHIVES, or in the user's directory of caches; None for `off`."""
    return cache_directory("classes", ARCHIVES_VARIABLE, environment)


def find_archive(java: Path, directory: Path | None) -> ClassArchive | None:
    """The archive of the Java in `java` and the installed Spark; None where there can be none.

    Where it is still to be made, its directory is, and what is too old there is removed.
    """
    if directory is None or not (java / _BASE).is_file():
        return None
    archive = ClassArchive(directory / f"{_family()}-{_identity(java)}.jsa")
    if not archive.is_made():
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _tidy(directory)
        except OSError:
            return None
        if not os.access(directory, os.W_OK):
            return None
    return archive


def _family() -> str:
    """What the names of all archives of the installed Spark begin with."""
    return f"spark-{version('pyspark')}"


def _identity(java: Path) -> str:
    """Differs where Java would pass the archive over: by its own build, and by jars, their sizes and times."""
    import pyspark  # Java is looked for where Spark is not installed, too

    jars = Path(pyspark.__file__).parent / "jars"
    parts = [str(java)]
    with suppress(OSError):
        parts.append((java / "release").read_text(encoding="utf-8", errors="replace"))
    for jar in sorted(jars.glob("*.jar")):
        stat = jar.stat()
        parts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _tidy(directory: Path) -> None:
    """Remove what no process finished, and what would be more than is kept beside the one that is made now."""
    for file in directory.glob("spark-*.jsa.*"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _UNFINISHED_S:
                file.unlink()
    families: dict[str, list[Path]] = {_family(): []}
    for file in sorted(directory.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True):
        families.setdefault(file.stem.rpartition("-")[0], []).append(file)
    for family, archives in families.items():
        # Names of earlier releases do not tell the version.
        kept = 0 if family == "spark" else KEPT_ARCHIVES - (family == _family())
        for file in archives[kept:]:
            file.unlink(missing_ok=True)
