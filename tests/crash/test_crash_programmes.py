"""The crash programmes at the size for every commit: nothing that was promised is lost, altered or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.catalogue import PROGRAMMES, run_programme
from crash.programme import ProgrammeRun, Size

SEED = 20


def _passed(name: str, keep: Path) -> ProgrammeRun:
    run = run_programme(name, seed=SEED, size=Size.CI, keep=keep)
    assert not run.failures, run.verdict(f"{name} {PROGRAMMES[name].title}", 0.0)
    return run


def test_s1_a_tail_torn_at_any_byte_costs_what_was_torn_and_nothing_else(tmp_path: Path) -> None:
    assert _passed("S1", tmp_path).counts["starts"] >= 3_000


def test_s2_every_flipped_bit_is_found_and_none_is_served(tmp_path: Path) -> None:
    counts = _passed("S2", tmp_path).counts
    assert counts["flips"] >= 80_000
    assert counts["starts"] >= 500


def test_s3_every_legal_disk_after_a_crash_keeps_the_promises(tmp_path: Path) -> None:
    assert _passed("S3", tmp_path).counts["states"] >= 10_000


@pytest.mark.official
def test_s4_a_server_killed_under_load_loses_and_alters_nothing(tmp_path: Path) -> None:
    counts = _passed("S4", tmp_path).counts
    assert counts["kills"] >= 10
    assert counts["acknowledged"] >= 500


def test_s6_power_failures_cost_sync_flush_nothing_and_async_flush_its_window_at_most(tmp_path: Path) -> None:
    counts = _passed("S6", tmp_path).counts
    assert counts["cuts"] >= 200
    assert counts["records_lost"] > 0


def test_s7_a_disk_that_fails_anywhere_is_met_with_the_right_error_and_survived(tmp_path: Path) -> None:
    assert _passed("S7", tmp_path).counts["faults"] >= 200
