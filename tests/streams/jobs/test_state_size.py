"""The size of a job's state, from its files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from millstream.streams.jobs.identity import OWNER_FILE, CopyOwner
from millstream.streams.jobs.state_size import MEASURE_S, StateSize


def keep(directory: Path, name: str, size: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(bytes(size))


def test_the_files_of_all_operators_and_queries_count_and_nothing_else(tmp_path: Path) -> None:
    keep(tmp_path / "a" / "operators" / "0-count", "1.0-127.delta", 30)
    keep(tmp_path / "b" / "operators" / "0-count", "1.0-127.delta", 12)
    keep(tmp_path / "a" / "spark" / "offsets", "1", 1_000)
    assert StateSize(tmp_path).measure() == 42
    assert StateSize(tmp_path / "nothing").measure() == 0


def test_files_are_looked_at_once_in_a_while(tmp_path: Path) -> None:
    now_s = 0.0
    size = StateSize(tmp_path, lambda: now_s)
    assert size.measure() == 0
    keep(tmp_path / "a" / "operators", "1.0-127.delta", 7)
    assert size.measure() == 0
    now_s = MEASURE_S
    assert size.measure() == 7


def test_the_size_of_state_that_lies_elsewhere_is_not_known(tmp_path: Path) -> None:
    keep(tmp_path / "a" / "operators", "1.0-127.delta", 7)
    (tmp_path / "a" / OWNER_FILE).write_bytes(msgspec.json.encode(CopyOwner("here", operators="s3://bucket/state")))
    assert StateSize(tmp_path).measure() is None
