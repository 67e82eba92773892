"""What the sink of files leaves in its directory: partitions, sizes, repeated micro-batches and replaced contents."""

from __future__ import annotations

import datetime
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa
import pyarrow.parquet

from millstream.streams.connectors.filesystem import part_files
from millstream.streams.connectors.filesystem.part_files import FileLayout
from millstream.streams.connectors.filesystem.partition_times import CommitPolicy
from millstream.streams.connectors.filesystem.sink import FileSink, Swap
from millstream.streams.errors import JobError
from millstream.streams.plan.types import BOOLEAN, INT, STRING, DataType, Field, Schema, TypeKind
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, Written

DAYS = Schema((Field("id", INT), Field("day", STRING), Field("hour", INT)))
MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
Row = tuple[int, str | None, int | None]


def layout(root: Path, schema: Schema = DAYS, *partition: str, **more: Any) -> FileLayout:
    return FileLayout(root / "out", schema, more.pop("file_format", "json"), partition or ("day", "hour"), **more)


def batch_of(*rows: Row) -> pa.RecordBatch:
    kinds = [pa.int32(), pa.string(), pa.int32()]
    columns = list(zip(*rows, strict=True))
    return pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], DAYS.names)


def prepared(sink: FileSink, root: Path, batch_id: int, *tasks: list[pa.RecordBatch]) -> list[Written]:
    """A micro-batch that is written and not committed."""
    sink.begin(Attempt("job", batch_id, 0, root / "notes"))
    written = []
    for number, batches in enumerate(tasks):
        task = SinkTask("job", batch_id, number)
        writer = pickle.loads(pickle.dumps(sink)).writer(task)
        for rows in batches:
            writer.write(rows)
        written.append(Written(task, sum(rows.num_rows for rows in batches), writer.finish()))
    return written


def put(sink: FileSink, root: Path, batch_id: int, *tasks: list[pa.RecordBatch]) -> None:
    sink.commit(batch_id, prepared(sink, root, batch_id, *tasks))


def files(root: Path, hidden: bool = False) -> dict[str, list[str]]:
    """The lines of each file by its path, or of those that are not to be seen."""
    out = root / "out"
    return {
        str(path.relative_to(out)): path.read_text().splitlines()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name.startswith(".") == hidden
    }


def ids(root: Path) -> dict[str, list[int]]:
    """The ids in each directory."""
    found: dict[str, list[int]] = {}
    for path, lines in files(root).items():
        if "part-" in path:
            found.setdefault(str(Path(path).parent), []).extend(json.loads(line)["id"] for line in lines)
    return {directory: sorted(numbers) for directory, numbers in found.items()}


def test_rows_lie_in_the_directory_of_their_partition_without_its_columns(tmp_path: Path) -> None:
    sink = FileSink("f", layout(tmp_path))
    first = batch_of((1, "a", 1), (2, "b:", 1), (3, "a", 1))
    written = prepared(sink, tmp_path, 0, [first, batch_of((4, "a", 2), (5, None, None), (6, "", 1))])
    assert not files(tmp_path)
    sink.commit(0, written)
    assert files(tmp_path) == {
        "day=a/hour=1/part-job-000-00000000-00000.json": ['{"id":1}', '{"id":3}'],
        "day=a/hour=2/part-job-000-00000000-00000.json": ['{"id":4}'],
        "day=b%3A/hour=1/part-job-000-00000000-00000.json": ['{"id":2}'],
        "day=__DEFAULT_PARTITION__/hour=__DEFAULT_PARTITION__/part-job-000-00000000-00000.json": ['{"id":5}'],
        "day=__DEFAULT_PARTITION__/hour=1/part-job-000-00000000-00000.json": ['{"id":6}'],
    }
    assert not files(tmp_path, hidden=True)
    assert "day=a/hour=2" in sink.touched
    assert len(sink.touched) == 5


def test_values_of_all_plain_types_name_directories(tmp_path: Path) -> None:
    date = DataType(TypeKind.DATE)
    money = DataType(TypeKind.DECIMAL, precision=5, scale=2)
    schema = Schema(
        (Field("id", INT), Field("ok", BOOLEAN), Field("day", date), Field("at", MOMENT), Field("price", money))
    )
    sink = FileSink("f", layout(tmp_path, schema, "ok", "day", "at", "price"))
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=datetime.UTC)
    rows = pa.record_batch(
        [
            pa.array([1], pa.int32()),
            pa.array([True]),
            pa.array([at.date()]),
            pa.array([at], pa.timestamp("us", "UTC")),
            pa.array(["1.50"]).cast(pa.decimal128(5, 2)),
        ],
        schema.names,
    )
    put(sink, tmp_path, 0, [rows])
    assert list(ids(tmp_path)) == ["ok=true/day=2026-01-02/at=2026-01-02 03%3A04%3A05.5/price=1.50"]


@pytest.mark.parametrize("open_files", [1, 100])
def test_more_partitions_than_open_files_keep_all_rows(
    open_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "MAX_OPEN_FILES", open_files)
    monkeypatch.setattr(part_files, "MAX_WAITING_BYTES", 1)
    rows = [(number, f"d{number % 7}", number % 3) for number in range(210)]
    put(FileSink("f", layout(tmp_path)), tmp_path, 0, [batch_of(*rows[:100]), batch_of(*rows[100:])])
    wanted: dict[str, list[int]] = {}
    for number, day, hour in rows:
        wanted.setdefault(f"day={day}/hour={hour}", []).append(number)
    assert ids(tmp_path) == wanted
    per_directory = Counter(str(Path(path).parent) for path in files(tmp_path))
    assert set(per_directory.values()) == ({2} if open_files == 1 else {1})


def test_rows_of_a_partition_wait_for_each_other_and_become_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_files, "MAX_OPEN_FILES", 1)
    put(FileSink("f", layout(tmp_path)), tmp_path, 0, [batch_of((n, f"d{n % 2}", 1), (n, "e", 1)) for n in range(4)])
    assert len(files(tmp_path)) == 3


def test_a_large_file_gets_a_successor(tmp_path: Path) -> None:
    plain = FileLayout(tmp_path / "out", DAYS, "json", roll_bytes=40)
    put(FileSink("f", plain), tmp_path, 0, [batch_of((n, "a", 1)) for n in range(4)])
    assert {path: len(lines) for path, lines in files(tmp_path).items()} == {
        "part-job-000-00000000-00000.json": 2,
        "part-job-000-00000000-00000-1.json": 2,
    }


@pytest.mark.parametrize(
    ("file_format", "options", "line"),
    [
        ("csv", {"csv.field-delimiter": ";", "csv.null-literal": "n/a"}, "1;a,b;n/a;n/a;true;2026-01-02 03:04:05"),
        ("csv", {}, '1,"a,b",,,true,"2026-01-02 03:04:05"'),
        (
            "json",
            {"json.timestamp-format.standard": "ISO-8601"},
            '{"id":1,"w":"a,b","v":null,"n":null,"ok":true,"at":"2026-01-02T03:04:05"}',
        ),
    ],
)
def test_the_options_of_the_format_hold_for_what_is_written(
    file_format: str, options: dict[str, str], line: str, tmp_path: Path
) -> None:
    kinds = {"id": INT, "w": STRING, "v": STRING, "n": INT, "ok": BOOLEAN, "at": MOMENT}
    schema = Schema(tuple(Field(name, kind) for name, kind in kinds.items()))
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    values: list[Any] = [1, "a,b", None, None, True, at]
    types = [pa.int32(), pa.string(), pa.string(), pa.int32(), pa.bool_(), pa.timestamp("us", "UTC")]
    rows = pa.record_batch([pa.array([one], kind) for one, kind in zip(values, types, strict=True)], schema.names)
    put(FileSink("f", FileLayout(tmp_path / "out", schema, file_format, options=options)), tmp_path, 0, [rows])
    assert list(files(tmp_path).values()) == [[line]]


def test_parquet_files_of_partitions_have_the_other_columns(tmp_path: Path) -> None:
    put(FileSink("f", layout(tmp_path, file_format="parquet")), tmp_path, 0, [batch_of((1, "a", 1))])
    (path,) = (tmp_path / "out" / "day=a" / "hour=1").glob("part-*.parquet")
    assert pyarrow.parquet.ParquetFile(path).read().to_pylist() == [{"id": 1}]


def test_a_task_without_rows_leaves_no_file(tmp_path: Path) -> None:
    put(FileSink("f", layout(tmp_path, file_format="parquet")), tmp_path, 0, [batch_of((1, "a", 1)).slice(1)])
    assert not (tmp_path / "out").exists()


def test_a_repeated_micro_batch_replaces_what_the_first_attempt_left_and_nothing_else(tmp_path: Path) -> None:
    put(FileSink("f", layout(tmp_path)), tmp_path, 6, [batch_of((0, "a", 1))])
    first = prepared(
        FileSink("f", layout(tmp_path)), tmp_path, 7, [batch_of((1, "a", 1), (2, "b", 1))], [batch_of((3, "a", 1))]
    )
    # Killed in the middle of the commit: one file has its name, the others are hidden.
    hidden = tmp_path / "out" / "day=b" / "hour=1" / ".part-job-000-00000007-00000.json"
    hidden.rename(hidden.with_name(hidden.name[1:]))
    assert len(first) == 2
    put(FileSink("f", layout(tmp_path)), tmp_path, 7, [batch_of((1, "a", 1), (3, "a", 1)), batch_of((2, "c", 1))])
    assert ids(tmp_path) == {"day=a/hour=1": [0, 1, 3], "day=c/hour=1": [2]}
    assert not files(tmp_path, hidden=True)


def test_a_name_that_no_directory_can_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"Cannot write to .*File name too long"):
        put(FileSink("f", layout(tmp_path)), tmp_path, 0, [batch_of((1, "x" * 300, 1))])


def put_by_hand(root: Path, *paths: str) -> None:
    for path in paths:
        (root / "out" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "out" / path).write_text('{"id":99}\n')


def test_overwriting_replaces_the_partitions_that_get_rows(tmp_path: Path) -> None:
    put_by_hand(tmp_path, "day=a/hour=1/old.json", "day=a/hour=1/_SUCCESS", "day=b/hour=1/old.json")
    sink = FileSink("f", layout(tmp_path), overwrites=True, policy=CommitPolicy("_SUCCESS", 0))
    put(sink, tmp_path, 0, [batch_of((1, "a", 1), (2, "c", 1))])
    part = "part-job-000-00000000-00000.json"
    assert list(files(tmp_path)) == [f"day=a/hour=1/{part}", "day=b/hour=1/old.json", f"day=c/hour=1/{part}"]


def test_overwriting_a_partition_that_is_named_empties_it_also_without_rows(tmp_path: Path) -> None:
    put_by_hand(tmp_path, "day=a/hour=1/old.json", "day=b/hour=1/old.json")
    sink = FileSink("f", layout(tmp_path), overwrites=True, emptied="day=a/hour=1")
    put(sink, tmp_path, 0)
    assert list(files(tmp_path)) == ["day=b/hour=1/old.json"]
    assert sink.touched == ("day=a/hour=1",)


def test_overwriting_a_table_without_partitions_replaces_all_that_readers_see(tmp_path: Path) -> None:
    put_by_hand(tmp_path, "old.json", "deep/old.json", ".hidden", "_meta", "part-other-000-00000000-00000.json")
    plain = FileLayout(tmp_path / "out", DAYS, "json")
    for number in (0, 1):
        sink = FileSink("f", plain, number=number, overwrites=True)
        put(sink, tmp_path, 0, [batch_of((number, "a", 1))])
    assert ids(tmp_path) == {".": [0, 1]}
    put(FileSink("f", plain, number=0, overwrites=True), tmp_path, 0)
    assert ids(tmp_path) == {".": [1]}
    assert (tmp_path / "out" / ".hidden").exists()
    assert (tmp_path / "out" / "_meta").exists()


def test_an_overwriting_that_is_cut_off_is_completed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_by_hand(tmp_path, "old.json", "older.json")
    sink = FileSink("f", FileLayout(tmp_path / "out", DAYS, "json", roll_bytes=1), overwrites=True)
    written = prepared(sink, tmp_path, 0, [batch_of((1, "a", 1)), batch_of((2, "a", 1))])
    replace, calls = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        # The note itself, then the first file.
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        sink.commit(0, written)
    monkeypatch.undo()
    assert {"old.json", "older.json"} < set(files(tmp_path))
    assert (len(files(tmp_path)), len(files(tmp_path, hidden=True))) == (3, 1)
    Swap.complete(tmp_path / "notes")
    assert ids(tmp_path) == {".": [1, 2]}
    assert list(files(tmp_path)) == ["part-job-000-00000000-00000-1.json", "part-job-000-00000000-00000.json"]
    put_by_hand(tmp_path, "old.json")
    Swap.complete(tmp_path / "notes")
    assert (tmp_path / "out" / "old.json").exists()
