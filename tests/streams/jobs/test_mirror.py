"""The copy of a checkpoint: when it is made, whose it is, and what it tells when it is behind."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from millstream.model.topic import check_topic_name
from millstream.streams.errors import JobError
from millstream.streams.jobs.identity import OWNER_FILE, CopyOwner, JobIdentity, write_identity
from millstream.streams.jobs.mirror import MAX_BEHIND_S, CheckpointMirror, StatePlace
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.state.state_files import LocalStateFiles
from millstream.streams.state.unreachable import StateDenied, StateUnreachable


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Gate(LocalStateFiles):
    """A directory that takes files only while its gate is open, and that fails with `error`."""

    opened = threading.Event()
    error: StateUnreachable | None = None

    def write(self, name: str, content: bytes) -> None:
        assert Gate.opened.wait(30)
        if Gate.error is not None:
            raise Gate.error
        super().write(name, content)


@pytest.fixture(autouse=True)
def _opened() -> None:
    Gate.opened.set()
    Gate.error = None


def planned(directory: Path, batch: int, done: int) -> None:
    """A checkpoint whose micro-batch `batch` is planned; those up to `done` are over."""
    for name, last in (("offsets", batch), ("commits", done)):
        (directory / "spark" / name).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (directory / "spark" / name / str(number)).write_text(f"{name} {number}")
    (directory / "late").mkdir(exist_ok=True)
    (directory / "late" / "rows").write_text("scratch")
    identity = {"id": "0123456789ab", "fingerprint": "f", "starts": {}}
    if not (directory / "job.json").exists():
        (directory / "job.json").write_text(json.dumps(identity))


def mirror(directory: Path, place: Path, *, waits: bool = True, clock: Clock | None = None) -> CheckpointMirror:
    return CheckpointMirror(directory, Gate(place), waits=waits, monotonic_s=clock or Clock())


def names(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_the_copy_has_the_checkpoint_and_the_last_of_sparks_logs(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    first = mirror(one, place)
    assert first.begin() == ""
    planned(one, 9, 8)
    first.before_writing()
    notice = mirror(two, place).begin()
    assert "in micro-batch 9." in notice
    assert "again" not in notice
    assert names(two) == [
        "job.json",
        "mirror.json",
        *(f"spark/commits/{number}" for number in (7, 8)),
        *(f"spark/offsets/{number}" for number in (7, 8, 9)),
    ]
    assert (two / "job.json").read_bytes() == (one / "job.json").read_bytes()


def test_a_copy_that_nobody_waited_for_goes_on_under_another_job_id(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    first = mirror(one, place, waits=False)
    first.begin()
    planned(one, 3, 2)
    first.before_writing()
    first.end()
    assert "get rows again" in mirror(two, place, waits=False).begin()
    before, after = (json.loads((directory / "job.json").read_text()) for directory in (one, two))
    assert before.pop("id") != after.pop("id")
    assert {name: after[name] for name in before} == before


def test_a_copy_of_a_start_that_waited_does_not_speak_for_one_that_does_not(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    first = mirror(one, place)
    first.begin()
    planned(one, 3, 2)
    first.before_writing()
    mirror(one, place, waits=False).begin()
    assert "get rows again" in mirror(two, place).begin()


def test_a_micro_batch_waits_for_the_copy_unless_it_is_told_not_to(tmp_path: Path) -> None:
    for waits in (True, False):
        one = tmp_path / f"one-{waits}"
        copy = mirror(one, tmp_path / f"place-{waits}", waits=waits)
        copy.begin()
        planned(one, 0, -1)
        Gate.opened.clear()
        went_on = threading.Event()

        def write(copy: CheckpointMirror = copy, went_on: threading.Event = went_on) -> None:
            copy.before_writing()
            went_on.set()

        thread = threading.Thread(target=write)
        thread.start()
        if waits:
            assert not went_on.wait(0.2)
        else:
            assert went_on.wait(30)
        Gate.opened.set()
        assert went_on.wait(30)
        thread.join()
        copy.end()
        assert (tmp_path / f"place-{waits}" / "head").exists()


def test_a_copy_that_is_far_behind_is_told(tmp_path: Path) -> None:
    clock = Clock()
    copy = mirror(tmp_path / "one", tmp_path / "place", waits=False, clock=clock)
    copy.begin()
    planned(tmp_path / "one", 0, -1)
    Gate.opened.clear()
    copy.before_writing()
    clock.now_s = MAX_BEHIND_S
    assert copy.trouble() is None
    clock.now_s = MAX_BEHIND_S + 12
    assert f"is {MAX_BEHIND_S + 12:.0f} s behind" in str(copy.trouble())
    Gate.opened.set()
    copy.end()
    assert copy.trouble() is None


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (StateUnreachable("p", "f", "away", "wait"), "STATE_UNREACHABLE"),
        (StateDenied("p", "f", "no", "ask"), "STATE_DENIED"),
    ],
)
def test_a_micro_batch_whose_copy_cannot_be_made_fails(error: StateUnreachable, name: str, tmp_path: Path) -> None:
    copy = mirror(tmp_path / "one", tmp_path / "place")
    copy.begin()
    planned(tmp_path / "one", 0, -1)
    Gate.error = error
    with pytest.raises(JobError) as said:
        copy.before_writing()
    assert said.value.name == name
    Gate.error = None
    copy.before_writing()
    assert "in micro-batch 0" in mirror(tmp_path / "two", tmp_path / "place").begin()


def test_the_first_machine_may_go_on_until_another_one_has_written(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    first = mirror(one, place)
    first.begin()
    planned(one, 3, 2)
    first.before_writing()
    second = mirror(two, place)
    second.begin()
    assert mirror(one, place).begin() == ""
    # Also the second one may start again before it has written anything.
    assert mirror(two, place).begin() == ""
    planned(two, 4, 3)
    second.before_writing()
    with pytest.raises(JobError, match="went on elsewhere") as said:
        mirror(one, place).begin()
    assert said.value.name == "CHECKPOINT_MISMATCH"
    assert mirror(two, place).begin() == ""


def test_a_directory_that_has_no_copy_yet_gets_one(tmp_path: Path) -> None:
    planned(tmp_path / "one", 5, 4)
    copy = mirror(tmp_path / "one", tmp_path / "place")
    assert copy.begin() == ""
    copy.before_writing()
    assert "in micro-batch 5" in mirror(tmp_path / "two", tmp_path / "place").begin()


def test_a_machine_that_dies_while_it_brings_a_copy_back_begins_again(tmp_path: Path) -> None:
    one, two, place = tmp_path / "one", tmp_path / "two", tmp_path / "place"
    first = mirror(one, place)
    first.begin()
    planned(one, 3, 2)
    first.before_writing()
    mirror(two, place).begin()
    (two / "job.json").unlink()
    (two / "spark" / "offsets" / "99").write_text("left over")
    assert "goes on from its copy" in mirror(two, place).begin()
    assert "spark/offsets/99" not in names(two)


def test_one_place_is_named_at_most(tmp_path: Path) -> None:
    settings = JobSettings.of({"state.mirror": "topic", "execution.checkpointing.dir": "/x"}, "127.0.0.1:1")
    with pytest.raises(JobError, match="both say where"):
        StatePlace(settings, "job", tmp_path)


def test_every_job_has_a_topic_that_can_be_made(tmp_path: Path) -> None:
    names = ["sums", "sums of a day", "sums-of-a-day", "sums.of.a.day", "Größe" * 20]
    topics = [topic_of(name, tmp_path) for name in names]
    assert topics[0] == "millstream-state-sums"
    assert len(set(topics)) == len(names)
    for topic in topics:
        check_topic_name(topic)


def topic_of(job: str, directory: Path) -> str:
    place = StatePlace(JobSettings.of({"state.mirror": "topic"}, "127.0.0.1:1"), job, directory)
    return place.location.removeprefix("the topic ")


def test_the_place_of_state_has_two_names() -> None:
    for name in ("execution.checkpointing.dir", "state.checkpoints.dir"):
        assert JobSettings.of({name: "s3://b/p"}, "").state_place == "s3://b/p"


def test_operators_keep_their_state_where_the_job_began(tmp_path: Path) -> None:
    directory = tmp_path / "job" / "t"
    (directory / "operators" / "0-x").mkdir(parents=True)
    write_identity(directory, JobIdentity("0123456789ab", "", {}))
    elsewhere = StatePlace(
        JobSettings.of({"execution.checkpointing.dir": str(tmp_path / "s")}, "n:1"), "job", directory
    )
    with pytest.raises(JobError, match="keep their state in") as refusal:
        elsewhere.check_operators()
    assert refusal.value.name == "CHECKPOINT_MISMATCH"
    here = StatePlace(JobSettings.of({}, "n:1"), "job", directory)
    here.check_operators()
    (directory / OWNER_FILE).write_bytes(msgspec.json.encode(CopyOwner("o", "", elsewhere.location)))
    elsewhere.check_operators()
    with pytest.raises(JobError, match="keep their state in"):
        here.check_operators()
