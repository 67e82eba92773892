"""Files of a directory as a table: each file once, in the order in which it was seen."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.streams.connectors.filesystem import source as file_source
from millstream.streams.connectors.filesystem.source import FoundFile, Listing, files_until
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.connected import ConnectedBatchReader, ConnectedSpec, ConnectedStreamReader
from millstream.streams.spark.source.dead_letters import malformed_spool
from table_reads import spec_of_table

MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
COLUMNS = {"id": INT, "word": STRING}

MONITORED = {"source.monitor-interval": "1 s"}


def spec_of(
    root: Path,
    columns: dict[str, DataType] | None = None,
    options: dict[str, str] | None = None,
    *,
    partitions: tuple[str, ...] = (),
    **more: Any,
) -> ConnectedSpec:
    physical = tuple(PhysicalColumn(column, kind) for column, kind in (columns or COLUMNS).items())
    given = {"connector": "filesystem", "path": str(root / "in"), **(options or {})}
    return spec_of_table(Table("t", physical, given, partition_keys=partitions), root, **more)


def put(root: Path, name: str, content: bytes, at_s: int) -> None:
    path = root / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (at_s, at_s))


def batch(reader: ConnectedStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """One micro-batch: where it ends, and its rows without the hidden columns; a tick's row is None."""
    end = reader.latestOffset(start, ReadAllAvailable())
    rows: list[Any] = []
    for part in reader.partitions(start, end):
        for record_batch in reader.read(part):
            for row in record_batch.to_pylist():
                tick = row.pop("__tick")
                rows.append(None if tick is not None else tuple(row.values()))
    return end, rows


def rows_of(spec: ConnectedSpec) -> list[Any]:
    reader = ConnectedStreamReader(spec)
    return batch(reader, reader.initialOffset())[1]


def test_files_are_read_once_the_oldest_first_and_new_ones_as_they_come(tmp_path: Path) -> None:
    put(tmp_path, "b.json", b'{"id":1,"word":"old"}\n', 100)
    put(tmp_path, "a.json", b'{"id":2}\n\n{"id":3}', 200)
    put(tmp_path, ".hidden.json", b'{"id":9}\n', 50)
    put(tmp_path, "_making/c.json", b'{"id":9}\n', 50)
    reader = ConnectedStreamReader(spec_of(tmp_path, options=MONITORED))
    first, rows = batch(reader, reader.initialOffset())
    assert rows == [(1, "old"), (2, None), (3, None)]
    assert batch(reader, first) == (first, [])
    put(tmp_path, "deep/0.json", b'{"id":4}\n', 10)
    second, rows = batch(reader, first)
    assert rows == [(4, None)]
    again = ConnectedStreamReader(spec_of(tmp_path, options=MONITORED))
    assert batch(again, first) == (second, [(4, None)])


def test_a_directory_that_is_not_watched_ends_with_what_is_there_at_the_start(tmp_path: Path) -> None:
    put(tmp_path, "a.json", b'{"id":1}\n', 1)
    reader = ConnectedStreamReader(spec_of(tmp_path, final_tick=True))
    reader.prepareForTriggerAvailableNow()
    first, rows = batch(reader, reader.initialOffset())
    put(tmp_path, "b.json", b'{"id":2}\n', 2)
    last, tick = batch(reader, first)
    assert (rows, tick) == ([(1, None)], [None])
    assert batch(reader, last) == (last, [])


def test_csv_lines_have_their_columns_by_place_and_malformed_ones_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b'1;"a;b"\r\nx;c\r\n2;\r\n3\r\n', 1)
    spec = spec_of(tmp_path, options={"format": "csv", "csv.field-delimiter": ";"})
    assert rows_of(spec) == [(1, "a;b"), (2, "")]
    refused = malformed_spool(tmp_path / "spool").take()
    assert [(one.queue_offset, one.body) for one in refused] == [(1, b""), (3, b"")]


def test_parquet_columns_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    table = pa.table({"ts": pa.array([moment], pa.timestamp("ms")), "other": ["x"], "id": pa.array([7], pa.int64())})
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    spec = spec_of(tmp_path, {"id": INT, "word": STRING, "ts": MOMENT}, {"format": "parquet"})
    assert rows_of(spec) == [(7, None, moment.replace(tzinfo=datetime.UTC))]


def test_directories_name_the_values_of_partition_columns(tmp_path: Path) -> None:
    put(tmp_path, "day=2026-01-02/hour=3/a.json", b'{"id":1}\n', 1)
    put(tmp_path, "day=__DEFAULT_PARTITION__/hour=4/a.json", b'{"id":2}\n', 2)
    columns = {"id": INT, "day": STRING, "hour": INT}
    spec = spec_of(tmp_path, columns, partitions=("day", "hour"))
    assert rows_of(spec) == [(1, "2026-01-02", 3), (2, None, 4)]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_metadata_columns_say_which_file_a_row_comes_from(tmp_path: Path, form: str) -> None:
    put(tmp_path, "deep/a.json", b'{"id":1}\n{"id":2}\n', 7)
    if form == "parquet":
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "deep" / "a.json")
        os.utime(tmp_path / "in" / "deep" / "a.json", (7, 7))
    zoned = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
    kinds = {
        "file.path": STRING,
        "file.name": STRING,
        "file.size": DataType(TypeKind.BIGINT),
        "file.modification-time": zoned,
    }
    asked = [MetadataColumn(f"m{place}", kind, key) for place, (key, kind) in enumerate(kinds.items())]
    options = {"connector": "filesystem", "path": str(tmp_path / "in"), "format": form}
    table = Table("t", (asked[0], PhysicalColumn("id", INT), *asked[1:]), options)
    path = tmp_path / "in" / "deep" / "a.json"
    changed = datetime.datetime(1970, 1, 1, 0, 0, 7, tzinfo=datetime.UTC)
    found = rows_of(spec_of_table(table, tmp_path))
    assert [row[:1] + row[-3:] for row in found] == [(str(path), "a.json", path.stat().st_size, changed)] * 2
    assert [row[1] for row in found] == [1, 2]
    assert rows_of(spec_of_table(table, tmp_path, {"m1": STRING})) == [("a.json",), ("a.json",)]


def test_only_paths_that_match_are_read(tmp_path: Path) -> None:
    put(tmp_path, "a.json", b'{"id":1}\n', 1)
    put(tmp_path, "a.txt", b"no row", 1)
    assert rows_of(spec_of(tmp_path, options={"source.path.regex-pattern": r".*\.json"})) == [(1, None)]


def test_a_batch_reads_all_files_in_as_many_tasks_as_run_at_once(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, f"{number}.json", b'{"id":%d}\n' % number, number)
    spec = spec_of(tmp_path, parallelism=2, queues=True, final_tick=True, batch=True)
    reader = ConnectedBatchReader(spec)
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(parts) == 3
    assert sorted(row["id"] for row in rows if row["__tick"] is None) == [0, 1, 2, 3, 4]
    assert {row["__queue"] for row in rows if row["__tick"] is None} == {"files/0"}
    assert [row["__tick"].year for row in rows if row["__tick"] is not None] == [9999]


def test_a_micro_batch_has_one_file_and_more_while_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "BATCH_BYTES", 10)
    files = [FoundFile(str(size), size) for size in (30, 4, 6, 1)]
    assert [files_until(files, first) for first in range(5)] == [1, 3, 4, 4, 4]


def test_a_file_keeps_its_place_when_others_go(tmp_path: Path) -> None:
    put(tmp_path, "a.json", b"", 1)
    put(tmp_path, "b.json", b"", 2)
    Listing(tmp_path / "list", tmp_path / "in", "").look()
    (tmp_path / "in" / "a.json").unlink()
    put(tmp_path, "0.json", b"", 1)
    listing = Listing(tmp_path / "list", tmp_path / "in", "")
    listing.look()
    assert [Path(found.path).name for found in listing.files] == ["a.json", "b.json", "0.json"]
