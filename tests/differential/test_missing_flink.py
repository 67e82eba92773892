"""Where Flink cannot run, the run says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from differential.installation import PyFlinkMissing, interpreter

from differential import __main__ as program


def test_without_java_there_is_no_flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PyFlinkMissing, match="no java"):
        interpreter(tmp_path / "venv")


def test_a_run_without_flink_is_skipped_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "ROOT", tmp_path / "out")
    monkeypatch.setattr(program, "VENV", tmp_path / "venv")
    monkeypatch.setattr(sys, "argv", ["differential", "--count", "1"])
    assert program.main() == 0
    assert "SKIPPED" in capsys.readouterr().out
