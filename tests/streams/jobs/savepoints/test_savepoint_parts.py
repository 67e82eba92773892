"""Savepoints of jobs with several plans: a part for each plan, whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_savepoint import job_at

from millstream.streams.errors import JobError
from millstream.streams.jobs.savepoints.savepoint import StagedSavepoint, check_savepoint, write_savepoint
from millstream.streams.jobs.savepoints.savepoint_parts import (
    count_parts,
    describe_parts,
    stage_checkpoints,
    stage_parts,
)


def two_plans(root: Path) -> Path:
    """The checkpoints of a job of two plans."""
    job_at(root / "first").rename(root / "job")
    job_at(root / "second").rename(root / "job+1")
    return root


def test_each_plan_has_a_part_that_is_a_savepoint_itself(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    parts = stage_checkpoints(two_plans(tmp_path), "job", saved, "both").finish()
    assert [(part.job, part.name) for part in parts] == [("job", "both"), ("job+1", "both")]
    assert describe_parts(saved) == parts
    assert count_parts(saved) == 2
    for number in range(2):
        check_savepoint(saved / str(number))


def test_a_job_of_one_plan_has_a_savepoint_without_parts(tmp_path: Path) -> None:
    (found,) = stage_checkpoints(job_at(tmp_path).parent, "job", tmp_path / "saved", "").finish()
    assert describe_parts(tmp_path / "saved") == [found]
    assert count_parts(tmp_path / "saved") is None
    assert count_parts(tmp_path / "nothing") is None


@pytest.mark.parametrize("count", [1, 2])
def test_what_cannot_be_written_is_refused_by_its_place_and_leaves_nothing(tmp_path: Path, count: int) -> None:
    def full(place: Path, _name: str) -> StagedSavepoint:
        raise OSError(28, "No space left on device")

    def good(place: Path, name: str) -> StagedSavepoint:
        place.mkdir()
        return StagedSavepoint(place, place, name, "job", ())

    with pytest.raises(JobError, match=r"saved: No space left on device") as refused:
        stage_parts(tmp_path / "saved", "", [good, full][2 - count :])
    assert refused.value.name == "SAVEPOINT_REFUSED"
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_while_the_files_are_read_is_refused(tmp_path: Path) -> None:
    two_plans(tmp_path)
    staged = stage_checkpoints(tmp_path, "job", tmp_path / "saved", "")
    write_savepoint(tmp_path / "job", tmp_path / "saved")
    with pytest.raises(JobError, match="cannot be written"):
        staged.finish()
    assert not list(tmp_path.glob(".saved*"))
    with pytest.raises(JobError, match="is there already"):
        stage_checkpoints(tmp_path, "job", tmp_path / "saved", "")
