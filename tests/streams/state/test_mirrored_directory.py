"""The copy of a directory: whenever its sender dies, whoever brings it back finds all of one moment."""

from __future__ import annotations

import os
import random
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millstream.streams.errors import JobError
from millstream.streams.state import mirrored_directory
from millstream.streams.state.mirrored_directory import BLOCK_BYTES, MirroredDirectory

Files = dict[str, bytes]


class Died(Exception):
    """The sender is no more."""


@dataclass
class Place:
    """State files in memory; the sender dies where it would change them once more than `left` times."""

    files: Files = field(default_factory=dict)
    left: float = float("inf")
    writes: int = 0
    location: str = "memory"

    def sizes(self) -> dict[str, int]:
        return {name: len(content) for name, content in self.files.items()}

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def write(self, name: str, content: bytes) -> None:
        self._change()
        self.writes += 1
        self.files[name] = content

    def delete(self, name: str) -> None:
        self._change()
        self.files.pop(name, None)

    def _change(self) -> None:
        if self.left <= 0:
            raise Died
        self.left -= 1


def mirror(directory: Path, place: Place) -> MirroredDirectory:
    return MirroredDirectory(directory, place, lambda name: not name.startswith("scratch/"))


def copy(source: MirroredDirectory, batch: int) -> None:
    moment = source.look()
    assert source.send(moment)
    source.name(moment, "me", {"batch": batch})
    source.sweep()


def content_of(directory: Path) -> Files:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def fill(directory: Path, files: Files) -> None:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    for name in content_of(directory).keys() - files.keys():
        (directory / name).unlink()


def brought_back(directory: Path, place: Place) -> tuple[int, Files]:
    target = mirror(directory, place)
    head = target.head()
    assert head is not None
    target.bring_back(head, but="id")
    directory.mkdir(exist_ok=True)
    (directory / "id").write_bytes(target.content(head, "id"))
    return int(head.note["batch"]), content_of(directory)


def random_files(chance: random.Random, batch: int) -> Files:
    large = {f"state/{chance.randrange(4)}": chance.randbytes(chance.choice([5_000, 30_000])) for _ in range(3)}
    return {"id": b"the job", f"offsets/{batch}": b"%d" % batch, "empty": b"", "notes/0": b"note %d" % batch, **large}


@pytest.mark.parametrize("seed", range(30))
def test_a_sender_that_dies_anywhere_leaves_one_whole_moment(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(mirrored_directory, "BLOCK_BYTES", 8_000)
    monkeypatch.setattr(mirrored_directory, "MAX_INLINE_BYTES", chance.choice([10, 512 * 1024]))
    place, moments = Place(), [random_files(chance, 0)]
    fill(tmp_path / "one", moments[0])
    source = mirror(tmp_path / "one", place)
    copy(source, 0)
    newest = 0
    for batch in range(1, 8):
        # Sometimes a file stays as it was, and is not sent again.
        moments.append({**random_files(chance, batch), "state/0": moments[-1].get("state/0", b"first")})
        fill(tmp_path / "one", moments[-1])
        place.left = chance.choice([0, 1, 2, 3, 4, 5, 6, 8, 12, 1000])
        try:
            copy(source, batch)
            newest = batch
        except Died:
            source = mirror(tmp_path / "one", place)
        place.left = float("inf")
        found, files = brought_back(tmp_path / "two", place)
        assert files == moments[found]
        assert newest <= found <= batch
        newest = found
    copy(source, 7)
    assert brought_back(tmp_path / "two", place) == (7, moments[7])
    # What earlier moments had is gone.
    assert len(place.files) - 1 <= sum(len(content) // 8_000 + 1 for content in moments[7].values()) + 1


def test_what_is_there_is_not_sent_again(tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path, {"id": b"x", "large": bytes(3 * BLOCK_BYTES), "other": b"y" * 9_000})
    source = mirror(tmp_path, place)
    copy(source, 0)
    # Three blocks of zeros are one, and the head.
    assert place.writes == 3
    copy(source, 1)
    assert place.writes == 4
    copy(mirror(tmp_path, place), 2)
    assert place.writes == 5


def test_small_files_that_stay_leave_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored_directory, "MAX_SMALL_BYTES", 2_500)
    place, files = Place(), {"id": b"x"}
    source = mirror(tmp_path / "one", place)
    for number in range(20):
        files[f"state/{number}"] = random.Random(number).randbytes(1_000)
        fill(tmp_path / "one", {f"state/{number}": files[f"state/{number}"], **files})
        os.utime(tmp_path / "one" / f"state/{number}", ns=(10**18 + number, 10**18 + number))
        copy(source, number)
        assert len(place.files["head"]) < 6_000
    assert brought_back(tmp_path / "two", place) == (19, files)


def test_scratch_and_unfinished_files_stay_here(tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path / "one", {"id": b"x", "scratch/a": b"1", ".job.json.1.tmp": b"2"})
    copy(mirror(tmp_path / "one", place), 0)
    assert brought_back(tmp_path / "two", place) == (0, {"id": b"x"})


def test_what_lies_in_the_directory_goes_before_a_moment_is_brought_back(tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path / "one", {"id": b"x", "offsets/1": b"1"})
    copy(mirror(tmp_path / "one", place), 1)
    fill(tmp_path / "two", {"offsets/2": b"2"})
    assert brought_back(tmp_path / "two", place) == (1, {"id": b"x", "offsets/1": b"1"})


def test_a_file_that_changes_while_it_is_sent_makes_no_moment(tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path, {"id": b"x", "large": b"1" * 9_000})
    source = mirror(tmp_path, place)
    moment = source.look()
    (tmp_path / "large").write_bytes(b"2" * 9_001)
    assert not source.send(moment)
    moment = source.look()
    (tmp_path / "large").unlink()
    assert not source.send(moment)
    assert source.head() is None


@pytest.mark.parametrize("damage", ["block", "missing", "head", "format"])
def test_a_damaged_copy_is_refused(damage: str, tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path / "one", {"id": b"x", "large": b"1" * 9_000})
    copy(mirror(tmp_path / "one", place), 0)
    [block] = set(place.files) - {"head"}
    if damage == "block":
        place.files[block] = b"2" * 9_000
    elif damage == "missing":
        del place.files[block]
    elif damage == "head":
        place.files["head"] = place.files["head"][:-4]
    else:
        place.files["head"] = zlib.compress(b'{"format":2,"owner":"me","note":{}}')
    with pytest.raises(JobError) as said:
        brought_back(tmp_path / "two", place)
    assert said.value.name == "CHECKPOINT_DAMAGED"


def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    place = Place()
    fill(tmp_path / "one", {"id": b"x"})
    source = mirror(tmp_path / "one", place)
    copy(source, 0)
    head = source.head()
    assert head is not None
    head.files["../out"] = head.files["id"]
    (tmp_path / "two").mkdir()
    with pytest.raises(JobError):
        mirror(tmp_path / "two", place).bring_back(head, but="id")
    assert not (tmp_path / "out").exists()
