"""What the Makefile's set-up asks pip for, and the stamps that tell make what was done."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "tools" / "setup.py"

pytestmark = pytest.mark.process

PIP = """#!/bin/sh
echo "$@"
exit {code}
"""


def set_up(directory: Path, kind: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The set-up of a directory whose Python only says what pip was asked for."""
    python = directory / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(PIP.format(code=code))
    python.chmod(0o755)
    return subprocess.run([sys.executable, str(SCRIPT), str(directory), kind], capture_output=True, text=True)


def stamps(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_file()}


def test_the_demo_installs_streams_without_the_tools_of_development(tmp_path: Path) -> None:
    done = set_up(tmp_path, "demo")
    assert done.returncode == 0
    assert "--editable .[streams" in done.stdout
    assert "dev" not in done.stdout
    assert stamps(tmp_path) == {".demo-ready"}


def test_the_tools_of_development_bring_what_the_demo_needs(tmp_path: Path) -> None:
    done = set_up(tmp_path, "dev")
    assert "--editable .[dev" in done.stdout
    assert stamps(tmp_path) == {".demo-ready", ".ready"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any("sigma" in one for one in extras["dev"])
    assert "millstream[streams]" in extras["sigma"]


def test_what_pip_could_not_install_is_tried_again_by_the_next_make(tmp_path: Path) -> None:
    failed = set_up(tmp_path, "demo", code=3)
    assert (failed.returncode, stamps(tmp_path)) == (1, set())
    assert failed.stderr.splitlines() == ["error: pip ended with 3; what it says above is why."]


def test_an_unknown_kind_is_told(tmp_path: Path) -> None:
    assert "demo, dev" in set_up(tmp_path, "all").stderr
