"""Dimension tables as workers open them: the version of the micro-batch, a copy for each machine, missing indexes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey
from millstream.streams.dimension.overlay import OverlayWriter, TableChanges
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.dimension.versions import MAX_VERSIONS, Loaded, VersionStore
from millstream.streams.errors import JobError
from millstream.streams.spark.lookups import open_tables
from millstream.streams.spark.lookups.open_tables import MAX_OPEN_OF_TABLE, OpenTables, TableUse

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
BY_ID, BY_NAME = IndexKey.equal("id"), IndexKey.equal("name")


def loaded(store: VersionStore, name: str) -> None:
    def fill(directory: Path) -> Loaded:
        builder = TableBuilder(directory, SCHEMA, [BY_ID])
        builder.add(pa.RecordBatch.from_pydict({"id": [1], "name": [name]}, SCHEMA))
        built = builder.finish()
        return Loaded(built.rows, built.size_bytes)

    store.load(fill)


def use_of(tmp_path: Path, *, key: IndexKey = BY_ID, copies: str = "") -> TableUse:
    return TableUse("things", str(tmp_path / "store"), str(tmp_path / "pins"), "job", key, copies)


def name_of(tables: OpenTables, use: TableUse) -> str:
    """The name of the row 1."""
    table = tables.table(use)
    found: str = table.take(table.find(BY_ID, [pa.array([1])]).row).column("name")[0].as_py()
    return found


def test_a_worker_stays_with_the_version_of_its_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    store, tables, use = VersionStore(tmp_path / "store"), OpenTables(), use_of(tmp_path)
    loaded(store, "old")
    assert name_of(tables, use) == "old"
    loaded(store, "new")
    assert name_of(tables, use) == "old"
    monkeypatch.setattr(open_tables, "micro_batch", lambda: 1)
    assert name_of(tables, use) == "new"
    monkeypatch.setattr(open_tables, "micro_batch", lambda: 0)
    assert name_of(OpenTables(), use) == "old"


def test_versions_that_are_open_stay_until_others_take_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(open_tables, "MAX_OPEN", 1)
    store, tables, use = VersionStore(tmp_path / "store"), OpenTables(), use_of(tmp_path)
    loaded(store, "0")
    assert name_of(tables, use) == "0"
    for batch in range(1, MAX_VERSIONS + 3):
        loaded(store, str(batch))
        assert store.head(1) is not None
    for batch in (7, 8, 9):
        monkeypatch.setattr(open_tables, "micro_batch", lambda batch=batch: batch)
        name_of(tables, use)
    store.forget()
    assert store.head(1) is None


def test_an_index_that_a_version_lacks_is_made_where_it_is_wanted(tmp_path: Path) -> None:
    loaded(VersionStore(tmp_path / "store"), "one")
    table = OpenTables().table(use_of(tmp_path, key=BY_NAME))
    assert table.find(BY_NAME, [pa.array(["one"])]).probe.tolist() == [0]


def test_each_machine_copies_a_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(VersionStore(tmp_path / "store"), "one")
    copied: list[Path] = []
    real = shutil.copytree

    def copytree(source: Path, target: Path, **named: Any) -> Path:
        copied.append(target)
        return real(source, target, **named)

    monkeypatch.setattr(shutil, "copytree", copytree)
    for machine in ("a", "a", "b"):
        use = use_of(tmp_path, copies=str(tmp_path / machine))
        table = OpenTables().table(use)
        assert table.directory.parent == tmp_path / machine / "store"
        assert name_of(OpenTables(), use) == "one"
    assert [target.parent.parent.name for target in copied] == ["a", "b"]


def test_a_worker_holds_few_versions_of_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, tables, use = VersionStore(tmp_path / "store"), OpenTables(), use_of(tmp_path)
    for batch in range(MAX_OPEN_OF_TABLE + 2):
        loaded(store, str(batch))
        monkeypatch.setattr(open_tables, "micro_batch", lambda batch=batch: batch)
        assert name_of(tables, use) == str(batch)
    # Micro-batches 3 and 4 may be repeated; 2 is held still.
    store.forget(1)
    assert [head.version for head in store.versions()] == [3, 4, 5]


def test_a_copy_of_changes_copies_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, use = VersionStore(tmp_path / "store"), use_of(tmp_path, copies=str(tmp_path / "machine"))
    loaded(store, "one")
    first = OpenTables().table(use).directory

    def fill(directory: Path) -> Loaded:
        keys = pa.RecordBatch.from_pydict({"id": [1]}, pa.schema([SCHEMA.field(0)]))
        rows = pa.RecordBatch.from_pydict({"id": [1], "name": ["changed"]}, SCHEMA)
        built = OverlayWriter(directory, store.directory_of(1), BY_ID, []).write(TableChanges(keys, rows))
        return Loaded(built.rows, built.size_bytes)

    store.load(fill)
    monkeypatch.setattr(open_tables, "micro_batch", lambda: 1)
    table = OpenTables().table(use)
    assert name_of(OpenTables(), use) == "changed"
    for name in DimensionTable.open(first).manifest.files:
        assert (table.directory / name).samefile(first / name)
    assert not (table.directory / "hidden").samefile(store.directory_of(2) / "hidden")


def test_copies_of_versions_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, use = VersionStore(tmp_path / "store"), use_of(tmp_path, copies=str(tmp_path / "machine"))
    tables, copies = OpenTables(), []
    for batch in range(MAX_VERSIONS + 3):
        loaded(store, str(batch))
        monkeypatch.setattr(open_tables, "micro_batch", lambda batch=batch: batch)
        copies.append(tables.table(use).directory)
    kept = {f"{head.version}-{head.id}" for head in store.versions()}
    assert {copy.name for copy in copies if copy.exists()} == kept
    assert len(kept) < len(copies)


def test_a_version_that_is_gone_is_told(tmp_path: Path) -> None:
    store, use = VersionStore(tmp_path / "store"), use_of(tmp_path)
    loaded(store, "one")
    OpenTables().table(use)
    shutil.rmtree(tmp_path / "store" / "versions" / "1")
    with pytest.raises(JobError, match="which is gone"):
        OpenTables().table(use)
