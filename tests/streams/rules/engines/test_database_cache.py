"""Databases that were compiled once are found by whoever needs the same; damage and lack of room cost time alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.streams.rules.engines import databases
from millstream.streams.rules.engines.databases import (
    DATABASES_VARIABLE,
    HAS_HYPERSCAN,
    DatabaseCache,
    PatternDatabase,
    RefusedError,
)

pytestmark = pytest.mark.skipif(not HAS_HYPERSCAN, reason="hyperscan is not there for this machine")

PATTERNS = [b"ab+c", b"x\\d{3}"]
TEXT = b"abbbc x123 x12"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DATABASES_VARIABLE, str(tmp_path / "kept"))
    monkeypatch.setattr(databases, "WORTH_KEEPING_S", -1.0)
    return tmp_path / "kept"


def never_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object) -> None:
        pytest.fail("it was compiled again")

    monkeypatch.setattr(databases, "_compile_patterns", compiled)


def test_the_second_one_who_needs_a_database_does_not_compile_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = PatternDatabase(PATTERNS, once=True)
    never_compiled(monkeypatch)
    second = PatternDatabase(PATTERNS, once=True)
    assert second.matches(TEXT) == first.matches(TEXT)
    assert {number for number, _ in second.matches(TEXT)} == {0, 1}
    assert second.size_bytes == first.size_bytes
    assert directory.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("directory")
def test_other_expressions_flags_and_orders_have_databases_of_their_own() -> None:
    for patterns, caseless in ((PATTERNS, False), (PATTERNS[::-1], False), ([b"AB+C", b"x"], True), ([b"AB+Cx"], True)):
        for _ in range(2):
            found = {number for number, _ in PatternDatabase(patterns, once=True, caseless=caseless).matches(TEXT)}
            assert found == ({0, 1} if len(patterns) == 2 else set())
    assert PatternDatabase([b"AB+C"], caseless=False).matches(TEXT) == []
    assert PatternDatabase([b"AB+C"], caseless=True).matches(TEXT) != []


@pytest.mark.parametrize("damage", ["cut short", "changed", "blank", "something else"])
def test_a_damaged_file_is_compiled_again_and_mended(directory: Path, damage: str) -> None:
    first = PatternDatabase(PATTERNS)
    (file,) = directory.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    file.write_bytes(
        {
            "cut short": whole[:middle],
            "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "blank": b"",
            "something else": b"x" * len(whole),
        }[damage]
    )
    assert PatternDatabase(PATTERNS).matches(TEXT) == first.matches(TEXT)
    assert file.read_bytes() == whole


def test_what_takes_no_time_and_what_is_refused_is_not_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError):
        PatternDatabase([b"(unclosed"])
    monkeypatch.setattr(databases, "WORTH_KEEPING_S", 60.0)
    PatternDatabase(PATTERNS)
    assert not directory.exists()


def test_a_directory_that_cannot_be_written_to_costs_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(databases, "WORTH_KEEPING_S", -1.0)
    for place in (str(tmp_path / "file" / "kept"), "off"):
        monkeypatch.setenv(DATABASES_VARIABLE, place)
        assert PatternDatabase(PATTERNS).matches(TEXT)


def test_the_files_that_nobody_asked_for_for_longest_make_room(tmp_path: Path) -> None:
    kept = DatabaseCache(tmp_path, most_bytes=250)
    for age_s, name in ((30, b"a"), (20, b"b")):
        kept.keep([name], 0, name * 100)
        for file in tmp_path.iterdir():
            stat = file.stat()
            os.utime(file, (stat.st_atime - age_s, stat.st_mtime - age_s))
    (tmp_path / ".0.hsdb.99").write_bytes(b"left behind")
    os.utime(tmp_path / ".0.hsdb.99", (1, 1))
    assert kept.find([b"a"], 0) == b"a" * 100
    kept.keep([b"c"], 0, b"c" * 100)
    assert [kept.find([name], 0) is not None for name in (b"a", b"b", b"c")] == [True, False, True]
    assert not (tmp_path / ".0.hsdb.99").exists()
    kept.keep([b"d"], 0, b"d" * 251)
    assert kept.find([b"d"], 0) is None
