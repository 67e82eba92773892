"""The examples of the DataStream SDK: what each prints, run as its first lines say or by `millstream job run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.server.child import ServerProcess

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "datastream"
LIMIT_S = 290

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


def run(server: ServerProcess, *command: str) -> list[str]:
    """The lines that the command prints."""
    environment = {**os.environ, "MILLSTREAM_NAMESERVER": server.addresses.nameserver}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=LIMIT_S, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_readings_are_added_up_by_window_also_the_late_one(server: ServerProcess) -> None:
    lines = run(server, str(EXAMPLES / "window_sum.py"))
    found = [dict(part.split("=") for part in line.removeprefix("sum: ").split(", ")) for line in lines]
    told = sorted((row["window_start"][11:19], row["device"], int(row["total"])) for row in found)
    assert told == [("12:00:00", "a", 5), ("12:00:00", "b", 10), ("12:00:10", "a", 2), ("12:00:30", "b", 20)]


def test_words_are_counted_by_the_command(server: ServerProcess) -> None:
    lines = run(server, "-m", "millstream", "job", "run", str(EXAMPLES / "word_count.py"), "--bounded", "-o", "json")
    told = [json.loads(line) for line in lines]
    last = {one["row"]["word"]: one["row"]["n"] for one in told if one.get("op") in ("+I", "+U")}
    assert last == {
        **dict.fromkeys(("or", "not", "that", "the", "question", "whether", "it", "nobler"), 1),
        **dict.fromkeys(("to", "be", "is"), 2),
    }


def test_only_the_host_with_too_many_failures_is_an_alert(server: ServerProcess) -> None:
    (line,) = run(server, str(EXAMPLES / "failed_logins.py"))
    assert line.startswith("alert: window_end=2026-05-01 12:01:00")
    assert line.endswith("host=web-1, team=payments, failures=6")
    with BlockingClient(server.addresses.nameserver) as client:
        bodies = [
            json.loads(message.body)
            for item in client.queue_ranges("login-alerts")
            for batch in client.read(item.queue, 0, item.range.max_offset)
            for message in batch.messages()
        ]
    assert [(body["host"], body["team"], body["failures"]) for body in bodies] == [("web-1", "payments", 6)]
