"""The interpreter that has PyFlink: a virtual environment of its own, since its packages do not go with ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

__all__ = ["VERSION", "PyFlinkMissing", "interpreter"]

VERSION: Final = "2.3.0"
"""The Flink that ours is held to."""


class PyFlinkMissing(Exception):
    """There is no PyFlink here, and why."""


def interpreter(directory: Path) -> Path:
    """The environment's Python; it is made where it is not there. Raises PyFlinkMissing."""
    if shutil.which("java") is None:
        raise PyFlinkMissing("There is no java on the PATH; Flink needs Java 17 or newer.")
    python, ready = directory / "bin" / "python", directory / f".ready-{VERSION}"
    if ready.exists():
        return python
    sys.stdout.write(f"Installing apache-flink {VERSION} into {directory} (about 1 GB) ...\n")
    sys.stdout.flush()
    venv.create(directory, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        last = next(iter(reversed(done.stdout.strip().splitlines())), "")
        raise PyFlinkMissing(f"apache-flink {VERSION} could not be installed: {last}")
    ready.touch()
    return python
