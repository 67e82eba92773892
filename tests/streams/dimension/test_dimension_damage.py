"""Tables that were not finished, that were damaged, or that could not be written."""

from __future__ import annotations

import errno
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from crash.file_twins import Died, FailingFiles, HastyFiles, MortalFiles
from dimension_samples import SEED, built, pairs

from millstream.store.files import FileLayer
from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.errors import DimensionError

BY_KEY = IndexKey.equal("key")
BY_ID = IndexKey.equal("id")
BY_RANGE = IndexKey(IndexKind.RANGE, ("id", "end"))
ROWS = pa.RecordBatch.from_pydict(
    {
        "key": ["a", None, "b", "", "a"],
        "id": [0, 1, 2, 3, 4],
        "end": [9, 1, 2, None, 4],
        "text": ["x", "yy", None, "", "z"],
    }
)
MOST_OPERATIONS = 200


def build(directory: Path, files: FileLayer) -> None:
    builder = TableBuilder(directory, ROWS.schema, [BY_KEY, BY_ID, BY_RANGE], seed=SEED, files=files)
    builder.add(ROWS)
    builder.finish()


def check(table: DimensionTable) -> None:
    assert pairs(table, table.find(BY_KEY, [pa.array(["a", "", "c"])]), "id") == [(0, 0), (0, 4), (1, 3)]
    assert pairs(table, table.find(BY_ID, [pa.array([1, 2])]), "text") == [(0, "yy"), (1, None)]
    assert pairs(table, table.find(BY_RANGE, [pa.array([2])]), "id") == [(0, 0), (0, 2)]


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A directory in memory where there is such, for thousands of files that no disk has to see."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="millstream-test-", dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def is_table(directory: Path) -> bool:
    try:
        DimensionTable.open(directory)
    except DimensionError:
        return False
    return True


@pytest.mark.parametrize("undone", [False, True], ids=["renamed", "rename undone"])
def test_a_builder_that_dies_at_any_point_leaves_a_whole_table_or_none(undone: bool, quick_path: Path) -> None:
    finished = 0
    for life in range(1, MOST_OPERATIONS):
        directory = quick_path / str(life)
        try:
            build(directory, MortalFiles(life, undone))
            finished += 1
            break
        except Died:
            pass
        if not is_table(directory):
            build(directory, HastyFiles())
        check(DimensionTable.open(directory, check=True))
    assert finished


@pytest.mark.parametrize("undone", [False, True], ids=["renamed", "rename undone"])
def test_adding_an_index_that_dies_at_any_point_leaves_the_table_as_it_was_or_with_it(
    undone: bool, quick_path: Path
) -> None:
    key = IndexKey.equal("text")
    built(quick_path / "whole", ROWS, BY_KEY, BY_ID, BY_RANGE)
    finished = 0
    for life in range(1, MOST_OPERATIONS):
        directory = quick_path / str(life)
        shutil.copytree(quick_path / "whole", directory)
        table = DimensionTable.open(directory, files=MortalFiles(life, undone))
        try:
            table.add_index(key)
            finished += 1
            break
        except Died:
            pass
        table = DimensionTable.open(directory, check=True)
        check(table)
        table.add_index(key)
        check(DimensionTable.open(directory, check=True))
        assert pairs(table, table.find(key, [pa.array(["", "yy"])]), "id") == [(0, 3), (1, 1)]
    assert finished


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.stat().st_size)


def test_a_file_that_is_cut_missing_or_longer_is_refused(tmp_path: Path) -> None:
    built(tmp_path / "t", ROWS, BY_KEY, BY_ID, BY_RANGE)
    for name in names(tmp_path / "t"):
        path = tmp_path / "t" / name
        content = path.read_bytes()
        for damage in (content[:-1], content + b"x", None):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
            with pytest.raises(DimensionError, match=name) as caught:
                DimensionTable.open(tmp_path / "t")
            assert caught.value.name == "DIMENSION_DAMAGED"
        path.write_bytes(content)
    check(DimensionTable.open(tmp_path / "t"))


def test_a_changed_byte_is_refused_where_checksums_are_checked(tmp_path: Path) -> None:
    built(tmp_path / "t", ROWS, BY_KEY, BY_ID, BY_RANGE)
    for name in names(tmp_path / "t"):
        path = tmp_path / "t" / name
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(DimensionError, match="fails its checksum"):
            DimensionTable.open(tmp_path / "t", check=True)
        path.write_bytes(content)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DimensionError, match="holds no dimension table"):
        DimensionTable.open(tmp_path / "none")


def test_a_table_is_not_built_over_another_one(tmp_path: Path) -> None:
    built(tmp_path / "t", ROWS, BY_KEY)
    with pytest.raises(DimensionError, match="holds a dimension table already"):
        build(tmp_path / "t", HastyFiles())


@pytest.mark.parametrize("call", ["pwrite", "sync"])
def test_a_full_disk_is_one_clear_error(call: str, tmp_path: Path) -> None:
    files = FailingFiles()
    files.errors[call] = errno.ENOSPC
    with pytest.raises(DimensionError, match="cannot be written: No space left on device") as caught:
        build(tmp_path / "t", files)
    assert caught.value.name == "DIMENSION_NOT_WRITABLE"
    table = built(tmp_path / "u", ROWS, BY_KEY)
    table = DimensionTable.open(tmp_path / "u", files=files)
    with pytest.raises(DimensionError, match="No space left on device"):
        table.add_index(BY_ID)
    assert len(DimensionTable.open(tmp_path / "u", check=True).indexes) == 1


def _add(directory: Path) -> None:
    DimensionTable.open(directory).add_index(BY_ID)


@pytest.mark.process
def test_of_processes_that_add_the_same_index_at_once_one_builds_it(tmp_path: Path) -> None:
    built(tmp_path / "t", ROWS, BY_KEY, BY_RANGE)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add, args=(tmp_path / "t",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    table = DimensionTable.open(tmp_path / "t", check=True)
    assert sorted(map(str, table.indexes)) == sorted(map(str, (BY_KEY, BY_RANGE, BY_ID)))
    check(table)
