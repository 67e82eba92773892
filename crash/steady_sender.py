"""A producer that sends all the time, in its own process beside an attack: `python -m crash.steady_sender ADDRESS`.

Most of its messages are small, one in fifty has 1 MiB. The end of its standard input ends it; then it says how long its
sends took. Its credentials are those of the environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from crash.programme import ProgrammeRun
from millstream.client.blocking import BlockingClient
from millstream.model.errors import MillstreamError
from millstream.model.message import Message

__all__ = ["STEADY_TOPIC", "SteadySender"]

STEADY_TOPIC: Final = "steady"

MAX_P99_S: Final = 1.0
"""What its sends may take, but for one in a hundred."""

_PAUSE_S: Final = 0.02
_TIMEOUT_S: Final = 10.0
_LARGE_EVERY: Final = 50
_SMALL, _LARGE = b"x" * 100, bytes(1024 * 1024)


class SteadySender:
    """Runs within its block; `judge` says whether it was harmed."""

    def __init__(self, nameserver: str, environment: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "crash.steady_sender", nameserver]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
        )
        self._said = ""

    def __enter__(self) -> SteadySender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._said = self._process.communicate()[0]

    def judge(self, run: ProgrammeRun) -> None:
        """Note sends that failed or took long."""
        found = json.loads(self._said or '{"sent": 0}')
        run.counts |= {f"steady_{name}": value for name, value in found.items() if name != "error"}
        if not found["sent"]:
            run.fail("nothing was sent beside the attack, so nothing was tested")
        elif found["failed"]:
            run.fail(f"beside the attack {found['failed']} sends failed: {found['error']}")
        elif found["p99_ms"] > MAX_P99_S * 1000:
            run.fail(f"beside the attack one send in a hundred took {found['p99_ms']} ms and more")


def main(nameserver: str) -> None:
    """Send until standard input ends."""
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    took_s: list[float] = []
    errors: list[str] = []
    with BlockingClient(nameserver, timeout_s=_TIMEOUT_S) as client:
        while not is_over.wait(_PAUSE_S):
            body = _SMALL if len(took_s) % _LARGE_EVERY else _LARGE
            began_s = time.perf_counter()
            try:
                client.send(Message(STEADY_TOPIC, body))
            except MillstreamError as error:
                errors.append(str(error))
            took_s.append(time.perf_counter() - began_s)
    took_s.sort()
    at = [round(took_s[len(took_s) * part // 100] * 1000, 1) for part in (50, 99)] if took_s else [0, 0]
    most_ms = round(took_s[-1] * 1000, 1) if took_s else 0
    found = {"sent": len(took_s), "failed": len(errors), "p50_ms": at[0], "p99_ms": at[1], "most_ms": most_ms}
    sys.stdout.write(json.dumps({**found, "error": errors[0] if errors else ""}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
