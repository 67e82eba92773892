"""The example of learning: a model is trained and published, and its script finds the flows that leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.testing import StreamTest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "learning"

pytest.importorskip("sklearn", reason="scikit-learn is not installed: millstream[learning]")
LIMIT_S = 600.0
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def flow(host: str, pace: float, second: int) -> dict[str, object]:
    """A flow of ten seconds with so many bytes a second."""
    return {"host": host, "bytes": int(pace * 10), "seconds": 10.0, "ts": f"2026-01-01 00:00:{second:02}"}


def test_the_script_finds_what_the_model_was_trained_for(tmp_path: Path) -> None:
    store = tmp_path / "models"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py"), str(store)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert f"version 1 of the model leaks is in {store}" in done.stdout
    test = StreamTest((EXAMPLE / "score.sql").read_text(), variables={"store": str(store)}, limit_s=LIMIT_S)
    quiet = [flow("quiet", pace, second) for second, pace in enumerate((10_000, 12_000, 11_000, 10_500))]
    test.feed("flows", *quiet, flow("quiet", 45_000, 5), flow("leaking", 900_000, 6))
    found = {row["host"]: row for row in test.run().rows("alerts")}
    assert sorted(found) == ["leaking", "quiet"]
    assert found["leaking"]["chance"] > 0.9
    assert found["leaking"]["deviations"] is None
    # No leak for the model, and far from what this host does.
    assert found["quiet"]["chance"] < 0.5
    assert found["quiet"]["bytes"] == 450_000
