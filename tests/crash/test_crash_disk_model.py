"""The disk model: which contents are legal after a crash, and which are not."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path

from crash.disk_model import DiskState
from crash.traced_files import TracedFiles

from millstream.store.files import FileLayer


def _legal(files: TracedFiles) -> list[DiskState]:
    """Every state that a crash after all steps may leave."""
    model = files.model_at_start
    for step in files.steps:
        model.take(step)
    widths: list[int] = []

    def measure(versions: int, _what: str) -> int:
        widths.append(versions)
        return 0

    model.state(measure)
    states = []
    for picks in itertools.product(*map(range, widths)):
        given = iter(picks)
        states.append(model.state(lambda _versions, _what, given=given: next(given)))  # type: ignore[misc]
    return states


def _after(root: Path, work: Callable[[TracedFiles], None]) -> list[DiskState]:
    files = TracedFiles(root)
    work(files)
    return _legal(files)


def _write(files: TracedFiles, path: Path, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    with files.open_descriptor(path, create=True) as descriptor:
        files.pwrite(descriptor, data, position)
        if sync:
            files.fsync(descriptor)


def test_a_new_file_is_there_or_not_and_empty_torn_or_whole(tmp_path: Path) -> None:
    states = _after(tmp_path, lambda files: _write(files, tmp_path / "a", b"x" * 600))
    contents = {state.get("a", b"missing") for state in states}
    torn = {b"x" * 512 + bytes(88), bytes(512) + b"x" * 88}
    assert contents == {b"missing", b"", bytes(600), b"x" * 600} | torn


def test_a_synced_file_whose_directory_was_not_synced_may_be_missing_but_never_torn(tmp_path: Path) -> None:
    states = _after(tmp_path, lambda files: _write(files, tmp_path / "a", b"x" * 600, sync=True))
    assert {state.get("a", b"missing") for state in states} == {b"missing", b"x" * 600}


def test_what_was_synced_with_its_directory_is_there(tmp_path: Path) -> None:
    def work(files: TracedFiles) -> None:
        _write(files, tmp_path / "a", b"safe", sync=True)
        files.sync_directory(tmp_path)

    assert _after(tmp_path, work) == [{"a": b"safe"}]


def test_a_later_write_of_a_sector_brings_the_earlier_ones_along(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(4))

    def work(files: TracedFiles) -> None:
        _write(files, tmp_path / "a", b"1", 0)
        _write(files, tmp_path / "a", b"2", 1)

    assert {state["a"] for state in _after(tmp_path, work)} == {b"\0\0\0\0", b"1\0\0\0", b"12\0\0"}


def test_a_replaced_file_is_the_old_or_the_new_one_unless_its_data_was_not_synced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def hasty(files: TracedFiles) -> None:
        _write(files, tmp_path / "a.tmp", b"new")
        files.rename(tmp_path / "a.tmp", tmp_path / "a")

    def proper(files: TracedFiles) -> None:
        _write(files, tmp_path / "a.tmp", b"new", sync=True)
        files.rename(tmp_path / "a.tmp", tmp_path / "a")

    assert {state["a"] for state in _after(tmp_path, hasty)} >= {b"old", b"", b"new"}
    (tmp_path / "a").write_bytes(b"old")
    assert {state["a"] for state in _after(tmp_path, proper)} == {b"old", b"new"}


def test_a_removed_tree_may_be_there_still_in_part_until_its_directory_is_synced(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_bytes(b"a")
    files = TracedFiles(tmp_path)
    files.remove_tree(tmp_path / "tree")
    unsynced = TracedFiles.__new__(TracedFiles)
    unsynced.__dict__.update(files.__dict__)
    unsynced.steps = files.steps[:-1]
    states = _legal(unsynced)
    assert {"tree": None} in states
    assert {"tree": None, "tree/a": b"a"} in states
    assert {} in states


def test_a_file_system_that_was_synced_holds_everything(tmp_path: Path) -> None:
    def work(files: TracedFiles) -> None:
        files.make_directory(tmp_path / "d", sync=False)
        _write(files, tmp_path / "d" / "a", b"data")
        files.sync_file_system(tmp_path)

    assert _after(tmp_path, work) == [{"d": None, "d/a": b"data"}]


def test_a_second_name_of_a_synced_file_is_there_or_not_and_the_file_is_whole_under_both(tmp_path: Path) -> None:
    def work(files: TracedFiles) -> None:
        _write(files, tmp_path / "a", b"x" * 600, sync=True)
        files.sync_directory(tmp_path)
        files.link(tmp_path / "a", tmp_path / "b")

    states = _after(tmp_path, work)
    assert {(state.get("a"), state.get("b")) for state in states} == {(b"x" * 600, None), (b"x" * 600, b"x" * 600)}


def test_no_call_of_the_file_layer_is_unknown_to_the_tracing() -> None:
    """A call that changes files and is not traced would make every programme blind for it."""
    reading = {
        "close",
        "size",
        "pread",
        "map",
        "map_file",
        "entries",
        "exists",
        "read_all",
        "disk",
        "names",
        "open_to_read",
    }
    built_of_others = {"open_descriptor", "replace"}
    calls = {name for name, _ in inspect.getmembers(FileLayer, inspect.isfunction) if not name.startswith("_")}
    assert calls - reading - built_of_others == {name for name in vars(TracedFiles) if not name.startswith("_")}
