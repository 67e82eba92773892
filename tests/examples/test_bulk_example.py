"""The example of the bulk lane."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "bulk" / "events.py"
EVENTS = 2500


def run_example(nameserver: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE), nameserver, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_reads_as_many_events_as_it_sent_and_again_on_a_second_run(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        for _ in range(2):
            done = run_example(server.addresses.nameserver, str(EVENTS))
            assert done.returncode == 0, done.stdout + done.stderr
            assert re.findall(r"(?:sent|read) ([\d,]+) events, [\d,]+ a second", done.stdout) == ["2,500", "2,500"]
            assert "50 devices" in done.stdout
        with BlockingClient(server.addresses.nameserver) as client:
            assert sum(held.range.max_offset for held in client.queue_ranges("bulk-events")) == 2 * EVENTS


def test_a_topic_that_takes_no_batches_is_refused_in_words(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with BlockingClient(server.addresses.nameserver) as client:
            client.create_topic(TopicConfig("plain"))
        done = run_example(server.addresses.nameserver, "10", "plain")
    assert done.returncode == 1
    assert "exists with other settings" in done.stderr
    assert "Traceback" not in done.stderr
