"""Commands as a script runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

__all__ = ["Ran", "run"]


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    def json(self) -> object:
        return json.loads(self.out)


def run(*arguments: str, stdin: str = "") -> Ran:
    """One command in a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
