"""The reference pages say what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


ROOT = Path(__file__).parent.parent.parent


def test_the_generated_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, ""), f"run make docs: {checked.stdout}{checked.stderr}"
