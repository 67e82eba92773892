"""The example of machines over MQTT: alerts as a plain count says, and the two ways to write a task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.streams.rule_formats.rule_files import read_rule_files

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "iot"
LIMIT_S = 600.0


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE / "factory.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.spark
@pytest.mark.timeout(LIMIT_S + 60)
def test_a_subscriber_gets_each_alert_that_a_plain_count_says() -> None:
    done = run_example("--devices", "20", "--readings", "400", "--rate", "400", "--unusual", "0.1")
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["sent"], summary["tasks"]) == (400, 300)
    assert summary["expected"] == summary["matched"] == summary["received"] > 50
    assert set(summary["cpu_s"]) == {"server", "spark", "devices"}


def test_half_of_the_tasks_are_in_sql_and_all_are_rules_of_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from tasks import make_tasks, write_tasks

    tasks = make_tasks(300)
    assert sum(task.is_sql for task in tasks) == 150
    imported = read_rule_files(write_tasks(tasks, tmp_path))
    assert not imported.refused
    assert {rule.id for rule in imported.rules} == {task.name for task in tasks}


@pytest.mark.process
def test_too_few_devices_are_refused_in_one_line() -> None:
    done = run_example("--devices", "0")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--readings and --tasks are at least 1, --rate is above 0")
