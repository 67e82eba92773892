"""What a data directory has lost, shown and accepted from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run

from millstream.broker.data_directory import document

pytestmark = pytest.mark.process


def test_a_loss_is_shown_until_it_is_accepted_by_name(tmp_path: Path) -> None:
    document(tmp_path, "config/topics.json").save(b"{}")
    assert run("store", "repair", "--dir", str(tmp_path)).code == 0
    for path in (tmp_path / "config").iterdir():
        path.unlink()
    shown = run("store", "repair", "--dir", str(tmp_path), "--output", "json")
    assert shown.code == 1
    assert [(row["part"], row["state"]) for row in shown.json()] == [("config/topics.json", "missing")]  # type: ignore[attr-defined]
    unknown = run("store", "repair", "--dir", str(tmp_path), "--accept-loss", "config/groups.json")
    assert (unknown.code, "missing is config/topics.json" in unknown.err) == (1, True)
    accepted = run("store", "repair", "--dir", str(tmp_path), "--accept-loss", "config/topics.json")
    assert (accepted.code, "accepted" in accepted.out) == (0, True)
    assert run("store", "repair", "--dir", str(tmp_path)).code == 0
