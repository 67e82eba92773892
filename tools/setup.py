"""Makes the virtual environment that the Makefile's targets run in: Python 3.11 or newer is all it needs.

The development extra is installed; where no Java 17 or newer is found, the one that pip can bring is added.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17


def java_version() -> int | None:
    """The major version of the `java` on PATH, or None where there is none that runs."""
    java = shutil.which("java")
    if java is None:
        return None
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if said.returncode == 0 and found else None


def main() -> int:
    if sys.version_info < OLDEST_PYTHON:
        print(f"Python {sys.version.split()[0]} is too old; Millstream needs 3.11 or newer (make PYTHON=python3.11).")
        return 1
    directory = Path(sys.argv[1])
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"making {directory}")
        venv.create(directory, with_pip=True)
    extras = "dev" if (java_version() or 0) >= OLDEST_JAVA else "dev,streams-java"
    print(f"installing millstream[{extras}]: about 900 MB with Spark, a few minutes on the first run")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--editable", f".[{extras}]"], check=True)
    (directory / ".ready").touch()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
