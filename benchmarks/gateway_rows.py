"""How long a client of the SQL gateway waits for the first row of a SELECT over a topic."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess, ServerProcess
from millstream.telemetry.processes import ProcessTree

__all__ = ["measure_gateway_rows"]

_RUNS: Final = 8
_LIMIT_S: Final = 300.0
_CREATE: Final = "CREATE TABLE events (host STRING) WITH ('connector' = 'rocketmq', 'topic' = 'events')"

Figures = dict[str, Any]


def measure_gateway_rows() -> Figures:
    """The seconds of eight SELECTs one after the other, each from its statement to its first row, on one gateway.

    The gateway is warm: Spark has started and the first SELECT is over, which `first_s` has by itself. Processor
    seconds are of the gateway and all below it.
    """
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as broker:
        nameserver = broker.addresses.nameserver
        with BlockingClient(nameserver) as client:
            client.create_topic(TopicConfig("events"))
            client.send_many([Message("events", b'{"host": "a"}')])
        options = ("--port", "0", "--nameservers", nameserver, "--metrics-port", "-1")
        with RoleProcess("sql-gateway", Path(scratch) / "gateway", options=options) as gateway:
            session = _Session(f"http://{gateway.addresses['sql-gateway']}")
            session.rows(_CREATE)
            runs = [_timed(session, gateway.pid) for _ in range(_RUNS + 1)]
    seconds, cpu_s = zip(*runs[1:], strict=True)
    return {
        "first_s": round(runs[0][0], 2),
        "p50_s": round(statistics.median(seconds), 2),
        "max_s": round(max(seconds), 2),
        "cpu_p50_s": round(statistics.median(cpu_s), 2),
        "load_1_min": round(os.getloadavg()[0], 1),
    }


def _timed(session: _Session, pid: int) -> tuple[float, float]:
    tree = ProcessTree([pid])
    before_s, began_s = sum((tree.cpu_s() or {}).values()), time.monotonic()
    operation = session.rows("SELECT host FROM events")
    seconds, cpu_s = time.monotonic() - began_s, sum((tree.cpu_s() or {}).values()) - before_s
    session.cancel(operation)
    return seconds, cpu_s


class _Session:
    """A session of a client, over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        handle = self._ask("POST", "/v2/sessions", {})["sessionHandle"]
        self._home = f"/v2/sessions/{handle}"

    def rows(self, statement: str) -> str:
        """Run a statement until it has a row or is over; its operation."""
        operation = str(self._ask("POST", f"{self._home}/statements", {"statement": statement})["operationHandle"])
        page = f"{self._home}/operations/{operation}/result/0?rowFormat=JSON"
        until_s = time.monotonic() + _LIMIT_S
        while time.monotonic() < until_s:
            answer = self._ask("GET", page)
            if answer["resultType"] != "NOT_READY" and answer["results"]["data"]:
                return operation
            if answer["resultType"] == "EOS":
                return operation
            page = answer.get("nextResultUri") or page
        raise AssertionError(f"{statement} gave no row within {_LIMIT_S:.0f} s")

    def cancel(self, operation: str) -> None:
        self._ask("POST", f"{self._home}/operations/{operation}/cancel", {})

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
