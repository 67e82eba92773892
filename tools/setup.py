"""Makes the virtual environment that the Makefile's targets run in: Python 3.11 or newer is all it needs.

    python tools/setup.py DIRECTORY demo|dev

`demo` installs the stream engine, `dev` also what tests and development need; where no Java 17 or newer is found, the
one that pip can bring is added. A stamp in the directory tells make that it was done: `dev` leaves both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
JAVA_MB = 100


@dataclass(frozen=True)
class Kind:
    """What is installed: extras of pyproject.toml, about how large they are on disk, and the stamps it leaves."""

    extra: str
    size_mb: int
    stamps: tuple[str, ...]


KINDS = {
    "demo": Kind("streams", 900, (".demo-ready",)),
    "dev": Kind("dev", 1500, (".demo-ready", ".ready")),
}


def java_version() -> int | None:
    """The major version of the `java` on PATH, or None where there is none that runs."""
    java = shutil.which("java")
    if java is None:
        return None
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if said.returncode == 0 and found else None


def install(directory: Path, kind: Kind) -> int:
    """Install into the directory; pip says what it loads and how far it is. The exit code."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"making {directory}", flush=True)
        venv.create(directory, with_pip=True)
    has_java = (java_version() or 0) >= OLDEST_JAVA
    extras, size_mb = (kind.extra, kind.size_mb) if has_java else (f"{kind.extra},streams-java", kind.size_mb + JAVA_MB)
    print(f"installing millstream[{extras}]: about {size_mb:,} MB on disk, a few minutes on the first run", flush=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    # The work tree runs as it is: a build's tools for compiling are not fetched for it.
    environment = {**os.environ, "MILLSTREAM_PLAIN": "1"}
    done = subprocess.run([*pip, "--editable", f".[{extras}]"], check=False, env=environment)
    if done.returncode:
        print(f"error: pip ended with {done.returncode}; what it says above is why.", file=sys.stderr)
        return 1
    for stamp in kind.stamps:
        (directory / stamp).touch()
    return 0


def main(arguments: list[str]) -> int:
    if sys.version_info < OLDEST_PYTHON:
        print(f"Python {sys.version.split()[0]} is too old; Millstream needs 3.11 or newer (make PYTHON=python3.11).")
        return 1
    if len(arguments) != 2 or arguments[1] not in KINDS:
        print(f"error: give a directory and one of {', '.join(KINDS)}.", file=sys.stderr)
        return 2
    try:
        return install(Path(arguments[0]), KINDS[arguments[1]])
    except KeyboardInterrupt:
        print("\nstopped; the next make goes on with it.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
