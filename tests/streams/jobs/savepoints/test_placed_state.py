"""Savepoints of jobs whose operators keep their state in another place, and jobs that begin there from one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from savepoint_jobs import job_at, names_in

from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import OWNER_FILE, CopyOwner, read_identity, read_owner
from millstream.streams.jobs.mirror import CheckpointMirror, StatePlace
from millstream.streams.jobs.savepoints.savepoint import (
    begins_from,
    check_savepoint,
    open_savepoint,
    stage_savepoint,
    write_savepoint,
)
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.state.unreachable import StateDenied

STATE = Path("operators") / "0-aggregate"


def placed_job(root: Path) -> tuple[Path, Path]:
    """A job whose state was moved to a place, and the place of its one query."""
    job, place = job_at(root), root / "place" / "job" / "t"
    place.mkdir(parents=True)
    (job / "t" / "operators").rename(place / "operators")
    (job / "t" / OWNER_FILE).write_bytes(msgspec.json.encode(CopyOwner("o", "", str(place))))
    return job, place


def mirror_at(root: Path, job: Path) -> CheckpointMirror:
    settings = JobSettings.of({"execution.checkpointing.dir": str(root / "place")}, "n:1")
    found = StatePlace(settings, job.name, job / "t").mirror()
    assert found is not None
    return found


def copied_origins(location: str, job: Path) -> Callable[[str], str]:
    settings = JobSettings.of({"execution.checkpointing.dir": location}, "n:1")
    return lambda query: StatePlace(settings, job.name, job / query).copied_origin()


def test_a_savepoint_has_the_state_of_its_micro_batch_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write_savepoint(job_at(tmp_path / "one"), tmp_path / "local")
    job, _ = placed_job(tmp_path / "two")
    write_savepoint(job, tmp_path / "placed")
    assert names_in(tmp_path / "placed") == names_in(tmp_path / "local")
    # What is in Spark's metadata is drawn anew for each.
    for name in names_in(tmp_path / "local") - {"savepoint.json", "t/spark/metadata"}:
        assert (tmp_path / "placed" / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name
    check_savepoint(tmp_path / "placed")


def test_state_is_read_while_the_job_goes_on_and_what_changes_meanwhile_is_right(tmp_path: Path) -> None:
    job, place = placed_job(tmp_path)
    read: set[str] = set()

    @contextlib.contextmanager
    def pause() -> Iterator[None]:
        read.update(file.name for file in tmp_path.glob(".saved.*/t/operators/0-aggregate/*"))
        # A micro-batch has ended meanwhile: an old file is gone, and one that was of the next is of this one.
        (place / STATE / "3.0-15.groups").unlink()
        for part in ("offsets", "commits"):
            (job / "t" / "spark" / part / "5").write_text((job / "t" / "spark" / part / "4").read_text())
        yield

    stage_savepoint(job, tmp_path / "saved", pause=pause).finish()
    assert read == {"3.0-15.groups", "4.0-15.delta"}
    state = tmp_path / "saved" / "t" / STATE
    assert {file.name for file in state.iterdir()} == {"4.0-15.delta", "5.0-15.delta"}
    assert (state / "5.0-15.delta").read_bytes() == b"5.0-15.delta"


def test_a_place_that_is_away_leaves_no_half_of_a_savepoint(tmp_path: Path) -> None:
    job, _ = placed_job(tmp_path)
    (job / "t" / OWNER_FILE).write_bytes(msgspec.json.encode(CopyOwner("o", "", "s3:nowhere")))
    with pytest.raises(StateDenied):
        write_savepoint(job, tmp_path / "saved")
    assert not list(tmp_path.glob("*saved*"))


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_job_begins_in_another_place_and_its_copy_says_so_when_its_disk_is_lost(
    tmp_path: Path, is_placed: bool
) -> None:
    (tmp_path / "first").mkdir()
    first = placed_job(tmp_path / "first")[0] if is_placed else job_at(tmp_path / "first")
    write_savepoint(first, tmp_path / "saved")
    job, location = tmp_path / "jobs" / "new", str(tmp_path / "place")
    assert begins_from(tmp_path / "saved", job, copied_origins(location, job))
    left = tmp_path / "place" / "new" / "t" / STATE / "9.0-15.delta"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a start that was cut off")
    open_savepoint(tmp_path / "saved", job, location)
    assert {file.name for file in left.parent.iterdir()} == {"3.0-15.groups", "4.0-15.delta"}
    assert not (job / "t" / "operators").exists()
    settings = JobSettings.of({"execution.checkpointing.dir": location}, "n:1")
    StatePlace(settings, "new", job / "t").check_operators()

    copy = mirror_at(tmp_path, job)
    assert copy.begin() == ""
    copy.before_writing()
    copy.close()
    identity = read_identity(job / "t")
    lost = tmp_path / "elsewhere" / "new"
    assert not begins_from(tmp_path / "saved", lost, copied_origins(location, lost))
    again = mirror_at(tmp_path, lost)
    assert "goes on from its copy" in again.begin()
    again.close()
    assert read_identity(lost / "t") == identity
    assert read_owner(lost / "t") is not None


def test_a_place_with_a_copy_of_another_job_of_that_name_is_left_as_it_is(tmp_path: Path) -> None:
    job, place = placed_job(tmp_path)
    write_savepoint(job, tmp_path / "saved")
    (job / "t" / OWNER_FILE).unlink()
    copy = mirror_at(tmp_path, job)
    copy.begin()
    copy.before_writing()
    copy.close()
    before = names_in(place)
    other = tmp_path / "jobs" / "job"
    assert begins_from(tmp_path / "saved", other, copied_origins(str(tmp_path / "place"), other))
    with pytest.raises(JobError, match="has a copy of its checkpoint") as refused:
        open_savepoint(tmp_path / "saved", other, str(tmp_path / "place"))
    assert refused.value.name == "CHECKPOINT_MISMATCH"
    assert names_in(place) == before
    assert not other.exists()
