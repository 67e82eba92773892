"""The example of ingestion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "ingestion" / "web_log.py"


def test_every_line_of_a_log_that_is_rotated_arrives_once() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE), "3000"], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,000 lines written, 3,000 in the topic: the same" in done.stdout
