"""A driver's log: it does not grow without end, and its last lines are found over both files."""

from __future__ import annotations

from pathlib import Path

from millstream.job_server.bounded_log import BoundedLog, last_lines


def test_a_full_log_becomes_the_old_one_and_there_are_two_at_most(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "logs" / "a.log", limit_bytes=20)
    for number in range(10):
        log.write(b"line %d\n" % number)
    log.close()
    assert sorted(one.name for one in (tmp_path / "logs").iterdir()) == ["a.log", "a.log.1"]
    assert all(one.stat().st_size <= 20 for one in (tmp_path / "logs").iterdir())


def test_the_last_lines_go_over_both_files(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "a.log", limit_bytes=20)
    for number in range(5):
        log.write(b"line %d\n" % number)
    log.close()
    assert last_lines(tmp_path / "a.log", 2) == ["line 3", "line 4"]
    assert last_lines(tmp_path / "a.log", 4) == ["line 2", "line 3", "line 4"]
    assert last_lines(tmp_path / "a.log", 0) == []
    assert last_lines(tmp_path / "none.log", 3) == []


def test_a_log_that_is_opened_again_is_continued(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = BoundedLog(tmp_path / "a.log")
        log.write(text)
        log.close()
    assert last_lines(tmp_path / "a.log", 5) == ["one", "two"]
