"""What `python -m benchmarks` hands to its measurements."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import benchmarks.__main__ as benchmarks

EVENTS = ['{"@timestamp": "2026-01-01T00:00:00", "EventID": 1}', '{"@timestamp": "2026-01-01T00:00:01", "EventID": 4688}']


@pytest.mark.parametrize(("name", "measure"), [("detections", "measure_detections"), ("sql", "measure_job")])
def test_a_measurement_of_events_gets_those_of_the_input(
    name: str, measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "events.jsonl"
    source.write_text("\n".join(EVENTS))
    monkeypatch.setattr(benchmarks, "_HERE", tmp_path)
    monkeypatch.setattr(benchmarks, measure, lambda events: {"given": list(events)})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--input", str(source), "--only", name])

    assert benchmarks.main() == 0

    (written,) = (tmp_path / "results").glob("*.json")
    assert json.loads(written.read_text())[name] == {"given": EVENTS}
