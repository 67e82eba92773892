"""A table is brought to have the files that are named, once each, whatever it has and whoever else changes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")

from crash.faulty_objects import FaultyObjects, ObjectFault

from millstream.model.errors import MillstreamError
from millstream.tiered.columns.column_map import data_prefix
from millstream.tiered.columns.column_work import TableRequest, TableState
from millstream.tiered.columns.iceberg_tables import IcebergTables
from millstream.tiered.columns.object_io import StorePlace

SCHEMA = pa.schema([("_broker", pa.string()), ("id", pa.int64())])


class Lake:
    """A catalogue and a store, and as many clients of both as a test opens."""

    def __init__(self, directory: Path) -> None:
        self.objects = FaultyObjects()
        self._directory = directory
        self._opened: list[IcebergTables] = []

    def open(self) -> IcebergTables:
        place = StorePlace(self.objects, self._directory.as_uri())
        self._opened.append(IcebergTables(f"sqlite:///{self._directory}/tables.db", place))
        return self._opened[-1]

    def close(self) -> None:
        for tables in self._opened:
            tables.close()

    def put(self, number: int, broker: str = "b", schema: pa.Schema = SCHEMA) -> str:
        key = f"{data_prefix('c', 't', broker)}{number}.parquet"
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([{"_broker": broker, "id": number}], schema), sink)
        self.objects.put(key, sink.getvalue())
        return key

    def files(self) -> list[str]:
        table = self._opened[0]._catalog.load_table(("c", "t"))
        return sorted(one.file.file_path.rpartition("/data/")[2] for one in table.scan().plan_files())

    def properties(self) -> dict[str, str]:
        snapshot = self._opened[0]._catalog.load_table(("c", "t")).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        found = snapshot.summary.additional_properties
        return {name: value for name, value in found.items() if name.startswith("millstream.")}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


def wanted(*keys: str, broker: str = "b", offsets: dict[int, int] | None = None) -> TableRequest:
    return TableRequest("t", "c", broker, "", "", keys, offsets or {0: len(keys)})


def test_files_come_and_go_as_they_are_named(lake: Lake) -> None:
    tables = lake.open()
    keys = [lake.put(number) for number in range(4)]
    assert tables.keep(wanted(*keys[:2]), SCHEMA) == TableState(2, 0)
    assert tables.keep(wanted(*keys[:2]), SCHEMA) == TableState(0, 0)
    assert tables.keep(wanted(*keys[1:]), SCHEMA) == TableState(2, 1)
    assert lake.files() == ["b/1.parquet", "b/2.parquet", "b/3.parquet"]
    assert tables.keep(wanted(), SCHEMA) == TableState(0, 3)
    assert lake.files() == []


def test_each_broker_has_its_own_files_and_offsets(lake: Lake) -> None:
    one, other = lake.open(), lake.open()
    one.keep(wanted(lake.put(1), offsets={0: 5, 10: 7}), SCHEMA)
    other.keep(wanted(lake.put(1, "x"), broker="x"), SCHEMA)
    one.keep(wanted(lake.put(2), offsets={0: 6, 10: 7}), SCHEMA)
    assert lake.files() == ["b/2.parquet", "x/1.parquet"]
    assert lake.properties() == {"millstream.offsets.b": '{"0":6,"10":7}', "millstream.offsets.x": '{"0":1}'}


def test_of_two_who_add_the_same_file_at_once_one_fails_and_then_finds_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a master that does not know yet that it is none any more."""
    slow, fast = lake.open(), lake.open()
    slow.keep(wanted(lake.put(0)), SCHEMA)
    request = wanted(lake.put(0), lake.put(1))
    look = slow._files_of

    def look_and_wait(*arguments: Any) -> Any:
        found = look(*arguments)
        fast.keep(request, SCHEMA)
        return found

    monkeypatch.setattr(slow, "_files_of", look_and_wait)
    with pytest.raises(MillstreamError, match="Another came between") as failed:
        slow.keep(request, SCHEMA)
    assert failed.value.name == "COLUMN_COPY_FAILED"
    monkeypatch.undo()
    assert slow.keep(request, SCHEMA) == TableState(0, 0)
    assert lake.files() == ["b/0.parquet", "b/1.parquet"]


def test_columns_are_added_and_a_type_that_changes_is_refused(lake: Lake) -> None:
    tables = lake.open()
    tables.keep(wanted(lake.put(0)), SCHEMA)
    wider = SCHEMA.append(pa.field("name", pa.string()))
    tables.keep(wanted(lake.put(0), lake.put(1, schema=wider)), wider)
    table = tables._catalog.load_table(("c", "t"))
    assert [field.name for field in table.schema().fields] == ["_broker", "id", "name"]
    assert lake.files() == ["b/0.parquet", "b/1.parquet"]
    other = pa.schema([("_broker", pa.string()), ("id", pa.string())])
    with pytest.raises(MillstreamError) as refused:
        tables.keep(wanted(lake.put(0), lake.put(1)), other)
    assert refused.value.name == "TABLE_REFUSED"


def test_a_file_that_is_missing_is_told_and_changes_nothing(lake: Lake) -> None:
    tables = lake.open()
    tables.keep(wanted(lake.put(0)), SCHEMA)
    with pytest.raises(MillstreamError) as refused:
        tables.keep(wanted(lake.put(0), "columns/c/t/data/b/none.parquet"), SCHEMA)
    assert refused.value.name == "TABLE_REFUSED"
    assert lake.files() == ["b/0.parquet"]


@pytest.mark.parametrize("fault", [ObjectFault.BEFORE, ObjectFault.AFTER])
def test_a_fault_at_any_call_leaves_the_table_as_it_was_or_as_it_is_to_be(tmp_path: Path, fault: ObjectFault) -> None:
    for number in range(30):
        directory = tmp_path / str(number)
        directory.mkdir()
        lake = Lake(directory)
        tables = lake.open()
        first, second = lake.put(0), lake.put(1)
        tables.keep(wanted(first), SCHEMA)
        lake.objects.plan.extend([*[None] * number, fault])
        with suppress(MillstreamError):
            tables.keep(wanted(first, second), SCHEMA)
        is_over = bool(lake.objects.plan)
        lake.objects.plan.clear()
        assert lake.files() in (["b/0.parquet"], ["b/0.parquet", "b/1.parquet"])
        tables.keep(wanted(first, second), SCHEMA)
        assert lake.files() == ["b/0.parquet", "b/1.parquet"]
        lake.close()
        if is_over:
            return
    raise AssertionError("a change of a table takes more than 30 calls")


def test_a_table_that_is_dropped_leaves_its_files_alone(lake: Lake) -> None:
    tables = lake.open()
    key = lake.put(0)
    tables.keep(wanted(key), SCHEMA)
    tables.drop("c", "t")
    tables.drop("c", "t")
    assert sorted(lake.objects.objects) == [key]
    tables.keep(wanted(key), SCHEMA)
    assert lake.files() == ["b/0.parquet"]


def test_a_snapshot_is_forgotten_some_time_after_another_followed_it(lake: Lake) -> None:
    tables = lake.open()
    keys = [lake.put(number) for number in range(3)]
    for number in range(3):
        tables.keep(wanted(*keys[: number + 1]), SCHEMA)
    times = [one.timestamp_ms for one in tables._catalog.load_table(("c", "t")).snapshots()]
    tables.tidy("c", "t", times[1])
    assert len(tables._catalog.load_table(("c", "t")).snapshots()) == 3
    tables.tidy("c", "t", times[-1] + 1)
    assert len(tables._catalog.load_table(("c", "t")).snapshots()) == 1
    assert lake.files() == ["b/0.parquet", "b/1.parquet", "b/2.parquet"]


def test_an_address_that_is_no_catalogue_is_told(lake: Lake, tmp_path: Path) -> None:
    place = StorePlace(lake.objects, tmp_path.as_uri())
    with pytest.raises(MillstreamError) as failed:
        IcebergTables(f"sqlite:///{tmp_path}/nowhere/tables.db", place)
    assert failed.value.name == "COLUMN_COPY_FAILED"
