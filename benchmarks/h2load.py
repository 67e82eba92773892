"""nghttp2's h2load as a load on a gRPC port: one prepared request again and again.

It costs a few microseconds a call, so the rate is the server's and not the load's.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.grpc_load import percentiles_ms
from millstream.protocol.grpc.service import SERVICE_NAME

__all__ = ["has_h2load", "run_h2load"]

_HEADERS = (
    "content-type: application/grpc",
    "te: trailers",
    "x-mq-client-id: bench@1@0@a",
    "x-mq-language: PYTHON",
    "x-mq-client-version: 5.0.9",
)
_TIMEOUT_S = 120.0


def has_h2load() -> bool:
    """Whether it is installed."""
    return shutil.which("h2load") is not None


def run_h2load(
    address: str, method: str, request: bytes, count: int, in_flight: int, *, connections: int = 1
) -> dict[str, Any]:
    """Calls a second, p50 and p99, and the processor seconds that h2load took itself.

    `count` is of all connections, `in_flight` of each. HTTP statuses alone are seen: the caller has to make sure that
    the calls did what they should. RuntimeError where one had no answer with status 200.
    """
    with tempfile.TemporaryDirectory() as scratch:
        body, log = Path(scratch) / "body", Path(scratch) / "log"
        body.write_bytes(b"\0" + len(request).to_bytes(4, "big") + request)
        words = ["h2load", "-n", str(count), "-c", str(connections), "-t", "1", "-m", str(in_flight), "-d", str(body)]
        words += [word for header in _HEADERS for word in ("-H", header)]
        words += [f"--log-file={log}", f"http://{address}/{SERVICE_NAME}/{method}"]
        before_s = _children_cpu_s()
        done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S)
        cpu_s = _children_cpu_s() - before_s
        rows = [tuple(map(int, line.split("\t"))) for line in log.read_text().splitlines()]
    if done.returncode or len(rows) != count or any(status != 200 for _, status, _ in rows):
        raise RuntimeError(f"h2load: {(done.stderr or done.stdout)[-500:]}")
    began_us = min(start for start, _, _ in rows)
    seconds = (max(start + taken for start, _, taken in rows) - began_us) / 1e6
    taken_s = [taken / 1e6 for _, _, taken in rows]
    return {"calls": count, "calls_per_s": round(count / seconds), **percentiles_ms(taken_s), "load_cpu_s": cpu_s}


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
