"""The example of the test kit, run as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "testing"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_example_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "millstream.testing.plugin", "test_orders.py"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "1 passed" in done.stdout
