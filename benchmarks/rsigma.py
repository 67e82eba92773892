"""The same Sigma rules over the same events in a Rust engine, rsigma, where cargo is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["measure_rsigma"]

_PROGRAM: Final = Path(__file__).parent / "sigma_rate"
_TARGET: Final = Path(__file__).parent.parent / ".build" / "sigma_rate"
_MOST_WORDS: Final = 300
"""Characters of what cargo says that are shown where it builds nothing."""


def measure_rsigma(rules: str, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Processor microseconds an event of reading and of judging on one core, hits, and peak memory.

    It is told each event's log source, and finds fields at the top of events alone. It remembers no values.
    """
    if shutil.which("cargo") is None:
        return {"skipped": "no cargo"}
    environment = {**os.environ, "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(_TARGET))}
    command = ["cargo", "build", "--release", "--quiet", "--manifest-path", str(_PROGRAM / "Cargo.toml")]
    built = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        return {"skipped": f"cargo builds nothing: {built.stderr.strip()[-_MOST_WORDS:]}"}
    program = Path(environment["CARGO_TARGET_DIR"]) / "release" / "sigma_rate"
    ran = subprocess.run([program, rules], input=b"\n".join(bodies), stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
