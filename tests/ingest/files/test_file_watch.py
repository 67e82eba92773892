"""Real files that grow, are rotated, emptied, deleted and packed, under a clock that the test moves."""

from __future__ import annotations

import errno
import gzip
import random
import re
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.ingest.files import watch
from millstream.ingest.files.lines import MultilineRule
from millstream.ingest.files.positions import PositionBook, PositionsDocument
from millstream.ingest.files.sources import TailSource, open_source
from millstream.ingest.files.tail import TailOptions
from millstream.ingest.files.watch import FileWatch, WatchOptions
from millstream.model.errors import StartRefused

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Following:
    """A watch whose events are acknowledged when the test says so; a restart knows what was saved."""

    def __init__(self, directory: Path, pattern: str = "*.log", **options: object) -> None:
        tail = TailOptions(joining=options.pop("joining", None))  # type: ignore[arg-type]
        self.options = WatchOptions([str(directory / pattern)], tail, **options)  # type: ignore[arg-type]
        self.now_s = 100.0
        self.said: list[str] = []
        self.saved = PositionsDocument()
        self._start()

    def _start(self) -> None:
        self.watch = FileWatch(self.options, self.saved, lambda: self.now_s, self.said.append)

    def look(self, *, later_s: float = 1.0, acknowledged: bool = True) -> list[str]:
        """The events of all turns until there is nothing more, the clock moved on before."""
        self.now_s += later_s
        events = []
        while pieces := self.watch.turn():
            for piece in pieces:
                events += [body.decode() for body in piece.events.bodies]
                if acknowledged:
                    piece.settle()
        self.saved = self.watch.positions()
        return events

    def restart(self) -> None:
        self.watch.close()
        self._start()


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_come_once_as_the_file_grows_and_a_line_without_an_end_waits(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\ntwo\nthr")
    assert following.look() == ["one", "two"]
    append(log, "ee\n")
    assert following.look() == ["three"]
    assert following.look() == []


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\n")
    assert following.look() == ["one"]
    old = log.open("a")
    log.rename(logs / "a.log.1")
    append(log, "three\n")
    assert following.look() == ["three"]
    old.write("two, written late\n")
    old.close()
    assert following.look() == ["two, written late"]
    assert following.look(later_s=6) == []
    assert following.watch.files == 1


def test_a_file_renamed_to_a_name_that_matches_too_is_not_read_again(logs: Path) -> None:
    following, log = Following(logs, "a.log*"), logs / "a.log"
    append(log, "one\n")
    assert following.look() == ["one"]
    log.rename(logs / "a.log.1")
    append(log, "two\n")
    append(logs / "a.log.1", "late\n")
    assert sorted(following.look()) == ["late", "two"]
    following.restart()
    assert following.look() == []


def test_an_emptied_file_is_read_anew_also_where_it_is_longer_again(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\ntwo\npart")
    assert following.look() == ["one", "two"]
    with log.open("r+") as file:
        file.truncate(0)
        file.write("three\n")
    assert following.look() == ["part", "three"]
    with log.open("r+") as file:
        file.truncate(0)
        file.write("much longer than it was before\n")
    assert following.look() == ["much longer than it was before"]


def test_a_deleted_file_is_read_to_its_end_with_the_line_that_has_none(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\n")
    assert following.look() == ["one"]
    append(log, "two\nlast")
    log.unlink()
    assert following.look() == ["two"]
    assert following.look(later_s=6) == ["last"]
    assert following.watch.files == 0


def test_an_inode_that_is_given_to_another_file_is_no_reason_to_pass_over_its_beginning(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "old one\nold two\n")
    assert following.look() == ["old one", "old two"]
    following.watch.close()
    # The same inode with other content, as file systems give it out.
    with log.open("r+") as file:
        file.truncate(0)
        file.write("new one\nnew two\nnew three\n")
    following.restart()
    assert following.look() == ["new one", "new two", "new three"]
    assert "another file" in following.said[-1]


def test_after_a_restart_what_was_not_acknowledged_comes_again_and_nothing_else(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\n")
    assert following.look() == ["one"]
    append(log, "two\n")
    assert following.look(acknowledged=False) == ["two"]
    following.restart()
    append(log, "three\n")
    assert following.look() == ["two", "three"]


def test_what_was_rotated_away_while_nobody_looked_is_read_from_where_it_was_left(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\n")
    assert following.look() == ["one"]
    append(log, "two\n")
    following.watch.close()
    log.rename(logs / "a.log.1")
    append(log, "three\n")
    following.restart()
    assert sorted(following.look()) == ["three", "two"]


def test_a_file_that_went_while_nobody_looked_is_told(logs: Path) -> None:
    following, log = Following(logs), logs / "a.log"
    append(log, "one\n")
    following.look()
    log.unlink()
    following.restart()
    assert following.look() == []
    assert following.said == [f"{log} is gone; 4 bytes of it were read"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_rotated_file_that_is_packed_is_not_read_again_but_for_its_rest(logs: Path, suffix: str) -> None:
    following, log = Following(logs, "a.log*"), logs / "a.log"
    lines = [f"line {number} {random.Random(number).random()}" for number in range(100)]
    append(log, "\n".join(lines) + "\n")
    assert following.look() == lines
    following.watch.close()
    content = log.read_bytes() + b"written before it was packed\n"
    (logs / f"a.log.1{suffix}").write_bytes(gzip.compress(content) if suffix == ".gz" else zstd.compress(content))
    log.unlink()
    append(log, "new\n")
    following.restart()
    assert sorted(following.look()) == ["new", "written before it was packed"]


def test_packed_files_are_read_once_and_taken_up_after_a_restart(logs: Path) -> None:
    lines = [f"line {number}" for number in range(1000)]
    (logs / "b.log.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    # Two frames, as an appending packer leaves them.
    half = [zstd.compress("\n".join(part).encode() + b"\n") for part in (lines[:500], lines[500:])]
    (logs / "c.log.zst").write_bytes(half[0] + half[1])
    following = Following(logs, "*.log.*")
    assert sorted(following.look()) == sorted(2 * lines)
    following.restart()
    assert following.look() == []


def test_a_packed_file_that_is_still_written_is_read_on_when_it_is_whole(logs: Path) -> None:
    lines = [str(random.Random(number).random()) for number in range(20_000)]
    content, packed = gzip.compress("\n".join(lines).encode() + b"\n"), logs / "b.log.gz"
    packed.write_bytes(content[: len(content) // 2])
    following = Following(logs, "*.gz")
    first = following.look()
    assert first == lines[: len(first)]
    assert 0 < len(first) < len(lines)
    packed.write_bytes(content)
    assert first + following.look() == lines


def test_a_damaged_packed_file_is_told_and_the_others_are_read(logs: Path) -> None:
    (logs / "bad.log.gz").write_bytes(b"no gzip at all")
    (logs / "good.log.gz").write_bytes(gzip.compress(b"one\n"))
    following = Following(logs, "*.gz")
    assert following.look() == ["one"]
    assert [line for line in following.said if "bad.log.gz is damaged" in line]
    assert following.watch.unreadable == 1


def test_beginning_at_the_end_holds_for_the_files_of_the_first_look_alone(logs: Path) -> None:
    append(logs / "a.log", "before\n")
    following = Following(logs, from_end=True)
    assert following.look() == []
    append(logs / "a.log", "after\n")
    append(logs / "b.log", "new file\n")
    assert following.look() == ["after", "new file"]


def test_an_open_event_is_whole_when_its_file_has_been_silent(logs: Path) -> None:
    following, log = Following(logs, joining=MultilineRule(more=re.compile(rb"^\s"))), logs / "a.log"
    append(log, "error\n  at a\n")
    assert following.look(later_s=0.0) == []
    append(log, "  at b\n")
    assert following.look(later_s=0.5) == []
    following.restart()
    assert following.look(later_s=0.5) == []
    assert following.look(later_s=1.0) == ["error\n  at a\n  at b"]
    following.restart()
    assert following.look(later_s=2.0) == []


def test_a_file_that_may_not_be_read_is_told_once_and_the_others_are_read(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path) -> TailSource:
        # Root, as whom tests may run, is allowed to read everything.
        if path.name == "secret.log":
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_source(path)

    monkeypatch.setattr(watch, "open_source", opened)
    append(logs / "secret.log", "secret\n")
    append(logs / "z.log", "one\n")
    following = Following(logs)
    assert following.look() + following.look() == ["one"]
    assert following.said == [f"{logs / 'secret.log'} cannot be read: Permission denied"]
    assert following.watch.unreadable == 1


steps = st.lists(
    st.sampled_from(["write", "write", "half", "rotate", "look", "look", "lose", "restart", "wait"]), max_size=25
)


@given(steps)
@settings(max_examples=scaled(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_it_is_rotated_and_restarted_every_line_comes_and_only_unacknowledged_ones_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("logs")
    following, log = Following(directory), directory / "a.log"
    written, seen, repeated, rotations, is_known = 0, [], 0, 0, False
    for step in [*steps, "restart", "end", "look", "look"]:
        if step in ("write", "half"):
            # A line number and some length, so that marks differ.
            append(log, f"{written:06d} {'x' * (written % 7)}{chr(10) if step == 'write' else '-' + chr(10)}")
            written += 1
        elif step == "rotate" and log.exists():
            if not is_known:
                # A file that comes and goes between two looks is seen by a pattern that matches its new name.
                seen += following.look()
            rotations, is_known = rotations + 1, False
            log.rename(directory / f"a.{rotations}")
        elif step in ("look", "wait"):
            seen += following.look(later_s=6.0 if step == "wait" else 1.0)
            is_known = log.exists()
        elif step == "lose":
            lost, is_known = following.look(acknowledged=False), log.exists()
            seen += lost
            repeated += len(lost)
            following.restart()
        elif step == "restart":
            following.restart()
    numbers = [int(line[:6]) for line in seen]
    assert sorted(set(numbers)) == list(range(written))
    assert len(numbers) - written <= repeated
    following.watch.close()
    shutil.rmtree(directory)


def test_positions_are_kept_in_a_directory_that_one_process_has(tmp_path: Path) -> None:
    following, log = Following(tmp_path), tmp_path / "a.log"
    append(log, "one\n")
    following.look()
    book = PositionBook(tmp_path / "state")
    book.save(following.saved)
    with pytest.raises(StartRefused, match="in use by the process"):
        PositionBook(tmp_path / "state")
    book.close()
    again = PositionBook(tmp_path / "state")
    assert again.read.files[0].offset == 4
    again.close()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"version": 99}', b'{"files": [{"path": 1}]}'])
def test_positions_that_cannot_be_read_are_refused_with_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "positions.json").write_bytes(content)
    with pytest.raises(StartRefused, match=r"positions\.json cannot be read") as refused:
        PositionBook(tmp_path)
    assert refused.value.name == "INGEST_POSITIONS"
