"""Where `make compiled` puts the compiled package, and what it says of a build that made nothing."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def test_a_directory_that_is_named_from_here_is_the_one_that_is_filled(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[Path] = []

    def build(target: Path) -> list[Path]:
        filled.append(target)
        made = [target / f"{number}.so" for number, _ in enumerate(builder.hot_modules())]
        for file in made:
            file.touch()
        return made

    monkeypatch.setattr(builder, "what_is_missing", lambda: None)
    monkeypatch.setattr(builder, "build", build)
    monkeypatch.chdir(tmp_path)
    assert builder.main(["compiled"]) == 0
    assert filled == [tmp_path / "compiled"]


def test_a_build_that_leaves_modules_out_is_an_error(
    builder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(builder, "what_is_missing", lambda: None)
    monkeypatch.setattr(builder, "build", lambda target: [])
    assert builder.main([str(tmp_path / "compiled")]) == 1
    assert "0 of" in capsys.readouterr().err
