"""The example of rules: they are taken, and fit the events that their titles tell of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.cli.main import main

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "rules"


def test_the_rules_of_the_example_fit_the_events_that_they_are_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--store", str(tmp_path / "rules"), "-o", "json")
    assert main(["rules", "import", str(EXAMPLE / "rules.yml"), *store]) == 0
    assert json.loads(capsys.readouterr().out)["refused"] == []
    assert main(["rules", "test", "--plain", "--events", str(EXAMPLE / "events.jsonl"), *store]) == 0
    assert {row["rule"]: (row["hits"], row["first"]) for row in json.loads(capsys.readouterr().out)} == {
        "office-shell": (1, "line 1"),
        "encoded-command": (1, "line 3"),
        "logon-failed": (3, "line 4"),
        "logon-succeeded": (1, "line 7"),
        "guessing": (3, "line 4"),
        "spraying": (3, "line 4"),
        "guessed": (4, "line 4"),
    }
