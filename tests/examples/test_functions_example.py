"""The example of users' functions: what the report says of its orders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "functions"


@pytest.mark.spark
def test_the_report_has_what_the_functions_say_of_each_order(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from millstream.cli.main import run; run()", "sql", "--bounded", "-f"]
    path = os.pathsep.join([str(EXAMPLE), *sys.path])
    done = subprocess.run(
        [*command, str(EXAMPLE / "report.sql")],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split("\t")[1:] for line in done.stdout.splitlines()) == [
        ["kiosk", "12.0"],
        ["kiosk", "north", "apples", "2000", "11.9"],
        ["kiosk", "north", "pears", "2000", "11.9"],
        ["kiosk", "north", "plums", "500", "23.8"],
        ["market", "30.0"],
        ["market", "south", "apples", "1000", "35.7"],
        ["market", "south", "nuts", "NULL", "47.6"],
    ]
    assert "failed calls 1 (orders.grams)" in done.stderr
