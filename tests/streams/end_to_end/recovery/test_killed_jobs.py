"""Jobs whose drivers are killed at moments of chance: each row is in its topic once, judged by the rules of its time."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from crash.catalogue import PROGRAMMES, run_programme
from crash.programme import Size
from crash.sink_databases import MARIADB_SKIPPED, POSTGRESQL_SKIPPED

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.kill]

SEED = 20


def test_a_tenth_of_s9_writes_each_row_once(tmp_path: Path) -> None:
    run = run_programme("S9", seed=SEED, size=Size.SMOKE, keep=tmp_path)
    assert not run.failures, run.verdict(f"S9 {PROGRAMMES['S9'].title}", 0.0)
    assert run.counts["kills"] == 1


def test_s9_a_job_that_is_killed_between_a_send_and_its_note_writes_each_row_once(tmp_path: Path) -> None:
    run = run_programme("S9", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S9 {PROGRAMMES['S9'].title}", 0.0)
    assert run.counts["kills"] == 1


def test_s20_a_job_that_loses_its_disk_with_its_driver_writes_each_row_once(tmp_path: Path) -> None:
    run = run_programme("S20", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S20 {PROGRAMMES['S20'].title}", 0.0)
    assert run.counts["kills"] == 1


def test_s11_a_job_that_is_killed_while_its_table_is_loaded_joins_each_micro_batch_with_one_version(
    tmp_path: Path,
) -> None:
    run = run_programme("S11", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S11 {PROGRAMMES['S11'].title}", 0.0)
    assert run.counts["kills"] == 1


def test_s10_a_job_that_is_killed_while_its_rules_change_judges_each_event_by_one_version(tmp_path: Path) -> None:
    run = run_programme("S10", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S10 {PROGRAMMES['S10'].title}", 0.0)
    assert run.counts["kills"] == 1
    assert run.counts["versions"] > 2


def test_s13_rules_that_count_apart_tell_the_same_though_their_driver_is_killed_between_the_queries(
    tmp_path: Path,
) -> None:
    run = run_programme("S13", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S13 {PROGRAMMES['S13'].title}", 0.0)
    assert run.counts["kills"] == 1


def test_s12_a_job_that_is_killed_around_the_commits_of_its_sinks_loses_no_row_and_doubles_none(tmp_path: Path) -> None:
    run = run_programme("S12", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S12 {PROGRAMMES['S12'].title}", 0.0)
    assert run.counts["kills"] == 1
    if POSTGRESQL_SKIPPED in run.counts:
        warnings.warn("no PostgreSQL server: Debian has it in the package postgresql", stacklevel=1)


@pytest.mark.timeout(3600)
def test_s21_a_job_whose_parts_are_all_killed_while_it_is_scaled_has_each_row_of_each_operator_once(
    tmp_path: Path,
) -> None:
    run = run_programme("S21", seed=SEED, size=Size.CI, keep=tmp_path)
    assert not run.failures, run.verdict(f"S21 {PROGRAMMES['S21'].title}", 0.0)
    assert run.counts["rounds"] == 50
    parts = ("driver", "java", "executor", "worker", "broker", "server")
    assert all(run.counts[f"{what}_kills"] for what in parts)
    assert run.counts["scalings"] >= 3
    for skipped, words in (
        (POSTGRESQL_SKIPPED, "no PostgreSQL server: Debian has it in the package postgresql"),
        (MARIADB_SKIPPED, "no MariaDB server: Debian has it in the package mariadb-server"),
    ):
        if skipped in run.counts:
            warnings.warn(words, stacklevel=1)
