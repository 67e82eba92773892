"""A job whose driver is killed at moments of chance has each of its rows in its topics once."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.catalogue import PROGRAMMES, run_programme
from crash.programme import Size

pytestmark = pytest.mark.spark

SEED = 20


def test_s9_a_job_that_is_killed_between_a_send_and_its_note_writes_each_row_once(tmp_path: Path) -> None:
    run = run_programme("S9", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S9 {PROGRAMMES['S9'].title}", 0.0)
    assert run.counts["kills"] == 2
