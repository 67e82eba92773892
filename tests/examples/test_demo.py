"""The demo from end to end, and its counts against a plain Python count over the same events."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DEMO = ROOT / "examples" / "security" / "demo.py"
REAL_EVENTS = ROOT.parent / "shared" / "data" / "security" / "windows-events.jsonl.zst"
SYNTHETIC_EVENTS = 6000

pytestmark = pytest.mark.spark


def run_demo(*arguments: str) -> dict[str, object]:
    """The summary that the demo prints as its last line."""
    done = subprocess.run([sys.executable, str(DEMO), *arguments], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


def rules() -> dict[str, re.Pattern[str]]:
    """The five patterns of detect.sql; Java's and Python's regular expressions agree on them."""
    script = (DEMO.parent / "detect.sql").read_text()
    found = re.findall(r"SELECT '(\w+)',.*?REGEXP\(CommandLine, '(.*?)'\);", script, re.DOTALL)
    return {name: re.compile(pattern) for name, pattern in found}


def counted(events: Iterable[str]) -> dict[str, object]:
    """What the summary must say, by a plain loop."""
    patterns = rules()
    assert len(patterns) == 5
    alerts: Counter[str] = Counter()
    windows: Counter[tuple[str, object]] = Counter()
    total = 0
    for line in events:
        event = json.loads(line)
        total += 1
        command = event.get("CommandLine")
        if isinstance(command, str):
            alerts.update(name for name, pattern in patterns.items() if pattern.search(command))
        time = event.get("@timestamp") or event.get("TimeCreated")
        if time:
            ten_seconds = time[:18].replace("T", " ")
            windows[ten_seconds, event.get("Hostname")] += 1
    return {
        "events": total,
        "alerts": dict(sorted(alerts.items())),
        "windows": len(windows),
        "events_in_windows": windows.total(),
        "malformed": 0,
        "without_event_time": total - windows.total(),
        "late": 0,
    }


def real_events() -> Iterator[str]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    with zstd.open(REAL_EVENTS, "rt", encoding="utf-8") as lines:
        yield from lines


def synthetic_events() -> Iterator[str]:
    sys.path.insert(0, str(DEMO.parent))
    from synthetic import synthetic_events as generated

    return generated(SYNTHETIC_EVENTS)


def test_the_summary_of_synthetic_events_is_what_a_plain_count_gives() -> None:
    summary = run_demo("--events", str(SYNTHETIC_EVENTS))
    expected = counted(synthetic_events())
    assert {name: summary[name] for name in expected} == expected
    assert {"seconds", "rows_per_s", "peak_mb"} <= set(summary)


@pytest.mark.data
@pytest.mark.skipif(not REAL_EVENTS.exists(), reason=f"the real events are not there: {REAL_EVENTS.name}")
def test_the_summary_of_real_events_is_what_a_plain_count_gives() -> None:
    summary = run_demo("--input", str(REAL_EVENTS))
    expected = counted(real_events())
    assert {name: summary[name] for name in expected} == expected


def test_ctrl_c_ends_it_with_one_line() -> None:
    demo = subprocess.Popen(
        [sys.executable, str(DEMO)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    with demo:
        assert demo.stderr is not None
        assert demo.stderr.readline() == "starting Spark ...\n"
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.stderr.read() == "stopped: Spark had not started yet; nothing is kept\n"
    assert demo.returncode == 130


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"time,host\n1,a\n"])
def test_a_file_without_events_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "input").write_bytes(content)
    done = subprocess.run(
        [sys.executable, str(DEMO), "--input", str(tmp_path / "input")], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "one JSON object per line" in done.stderr


def test_a_missing_input_is_refused_in_words() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO), "--input", "nothing.jsonl"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "nothing.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
