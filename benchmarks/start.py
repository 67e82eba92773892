"""How long the server needs to be ready, and its memory then."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from millstream.server.child import ServerProcess
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_start"]

_ROUNDS = 5


def measure_start() -> dict[str, object]:
    """Seconds from process start to the ready line (median of five) and memory (PSS) of the idle server."""
    seconds, peaks = [], []
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory() as scratch:
            started_s = time.monotonic()
            with ServerProcess(Path(scratch) / "data") as server:
                seconds.append(time.monotonic() - started_s)
                recorder = TreeRecorder([server.pid])
                recorder.take()
                peaks.append((recorder.peak_bytes or 0) / 2**20)
    return {"ready_s": round(statistics.median(seconds), 3), "memory_mb": round(statistics.median(peaks), 1)}
