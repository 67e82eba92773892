"""A table answers as a dict of its rows does."""

from __future__ import annotations

import datetime
import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crash.file_twins import HastyFiles
from dimension_samples import FewHashes, built, pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.streams.dimension import sorted_runs
from millstream.streams.dimension.builder import TableBuilder
from millstream.streams.dimension.index_key import IndexKey, IndexKind
from millstream.streams.dimension.key_hash import KeyHash
from millstream.streams.dimension.table import DimensionTable
from millstream.streams.errors import DimensionError

UTC = datetime.UTC
BY_KEY = IndexKey.equal("key")

TEXTS = st.none() | st.sampled_from(["", "a", "a\0", "ä", "日本", "b" * 300]) | st.text(max_size=12)
ROWS = st.lists(st.tuples(TEXTS, st.none() | st.integers(-3, 3)), max_size=60)

ALL_TYPES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-32768, 5, 32767],
    pa.int32(): [-(2**31), 7, 2**31 - 1],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.float32(): [0.5, -1.25, float("inf")],
    pa.float64(): [0.1, -2.5e300],
    pa.decimal128(10, 2): [Decimal("-1.50"), Decimal("99999999.99")],
    pa.decimal128(38, 4): [Decimal("-1234567890123456789012345678901234.5678"), Decimal("0.0001")],
    pa.string(): ["", "ä€😀", "x" * 400],
    pa.large_string(): ["", "long"],
    pa.binary(): [b"", b"\0\xff"],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(2026, 11, 21)],
    pa.time32("ms"): [datetime.time(0, 0), datetime.time(23, 59, 59, 999_000)],
    pa.time64("us"): [datetime.time(1, 2, 3, 4)],
    pa.timestamp("us", "UTC"): [datetime.datetime(1969, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 1, tzinfo=UTC)],
    pa.duration("us"): [datetime.timedelta(days=-1), datetime.timedelta(microseconds=1)],
}
NESTED_TYPES: dict[pa.DataType, list[Any]] = {
    pa.list_(pa.string()): [[], ["a", None, ""], ["b"]],
    pa.list_(pa.list_(pa.int32())): [[[1], None, []], []],
    pa.map_(pa.string(), pa.int64()): [[], [("a", 1), ("b", None)]],
    pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.string()))]): [
        {"x": 1, "y": ["q"]},
        {"x": None, "y": None},
    ],
    pa.null(): [None],
}


def batch_of(rows: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    names, numbers = zip(*rows, strict=True) if rows else ((), ())
    columns = [pa.array(names, pa.string()), pa.array(numbers, pa.int32()), pa.array(range(len(rows)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["key", "number", "id"])


def by_dict(rows: list[tuple[Any, ...]], probes: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """Pairs of probe and row, by plain comparison."""
    return [
        (place, row)
        for place, probe in enumerate(probes)
        for row, key in enumerate(rows)
        if None not in probe and None not in key and probe == key
    ]


@given(rows=ROWS, probes=ROWS, verify=st.booleans())
@settings(deadline=None, max_examples=scaled(60))
def test_every_match_is_found_as_in_a_dict_and_none_else(
    rows: list[tuple[str | None, int | None]], probes: list[tuple[str | None, int | None]], verify: bool
) -> None:
    both = IndexKey.equal("number", "key")
    with tempfile.TemporaryDirectory() as directory:
        table = built(Path(directory) / "t", batch_of(rows), BY_KEY, both, verify=verify)
        texts = [(text,) for text, _ in probes]
        found = table.find(BY_KEY, [pa.array([text for text, _ in probes], pa.string())])
        assert pairs(table, found, "id") == sorted(by_dict([(text,) for text, _ in rows], texts), key=repr)
        numbers = pa.array([number for _, number in probes], pa.int64())
        found = table.find(both, [pa.array([text for text, _ in probes], pa.string()), numbers])
        assert pairs(table, found, "id") == sorted(by_dict(rows, probes), key=repr)


@given(rows=ROWS, probes=ROWS)
@settings(deadline=None, max_examples=scaled(40))
def test_matches_are_ordered_by_probe_and_then_by_row(
    rows: list[tuple[str | None, int | None]], probes: list[tuple[str | None, int | None]]
) -> None:
    by_number = IndexKey.equal("number")
    with tempfile.TemporaryDirectory() as directory:
        table = built(Path(directory) / "t", batch_of(rows), BY_KEY, by_number)
        found = table.find(by_number, [pa.array([number for _, number in probes], pa.int32())])
        order = list(zip(found.probe.tolist(), found.row.tolist(), strict=True))
        assert order == sorted(set(order))


@given(rows=ROWS, probes=ROWS)
@settings(deadline=None, max_examples=scaled(40))
def test_keys_whose_hashes_collide_are_told_apart_where_a_table_verifies(
    rows: list[tuple[str | None, int | None]], probes: list[tuple[str | None, int | None]]
) -> None:
    by_number = IndexKey.equal("number")
    with tempfile.TemporaryDirectory() as directory:
        table = built(
            Path(directory) / "t", batch_of(rows), BY_KEY, by_number, stored=["id"], verify=True, hashing=FewHashes
        )
        found = table.find(BY_KEY, [pa.array([text for text, _ in probes], pa.string())])
        wanted = by_dict([(text,) for text, _ in rows], [(text,) for text, _ in probes])
        assert pairs(table, found, "id") == sorted(wanted, key=repr)
        found = table.find(by_number, [pa.array([number for _, number in probes], pa.int32())])
        wanted = by_dict([(number,) for _, number in rows], [(number,) for _, number in probes])
        assert pairs(table, found, "id") == sorted(wanted, key=repr)


def test_keys_whose_hashes_collide_are_taken_for_one_where_a_table_does_not_verify(tmp_path: Path) -> None:
    """Shows that the test of verified tables can fail."""
    rows = batch_of([(text, 1) for text in "abcdefghijklmnop"])
    table = built(tmp_path / "t", rows, BY_KEY, hashing=FewHashes)
    assert len(table.find(BY_KEY, [pa.array(["a"])]).row) > 1


@pytest.mark.parametrize("data_type", [*ALL_TYPES, *NESTED_TYPES], ids=str)
def test_values_of_every_type_come_back(data_type: pa.DataType, tmp_path: Path) -> None:
    values = [*(ALL_TYPES | NESTED_TYPES)[data_type], None] * 20
    for name, some in (("nulls", values), ("full", [one for one in values if one is not None]), ("none", [])):
        rows = pa.RecordBatch.from_arrays([pa.array(some, data_type)], ["value"])
        table = built(tmp_path / name, rows)
        assert table.schema == rows.schema
        order = np.arange(len(some))[::-1].copy()
        taken = table.take(order).column(0)
        taken.validate(full=True)
        assert taken.type == data_type
        assert taken.to_pylist() == rows.column(0).to_pylist()[::-1]
        assert [one for batch in table.scan() for one in batch.column(0).to_pylist()] == rows.column(0).to_pylist()


@pytest.mark.parametrize("data_type", ALL_TYPES, ids=str)
def test_rows_are_found_by_a_key_of_every_plain_type(data_type: pa.DataType, tmp_path: Path) -> None:
    values = [*ALL_TYPES[data_type], None]
    ids = pa.array(range(len(values)))
    rows = pa.RecordBatch.from_arrays([pa.array(values, data_type), ids], ["key", "id"])
    table = built(tmp_path / "t", rows, BY_KEY, verify=True)
    found = table.find(BY_KEY, [pa.array(values, data_type)])
    assert pairs(table, found, "id") == [(place, place) for place in range(len(values) - 1)]


def test_numbers_of_other_widths_and_decimals_of_other_scales_meet(tmp_path: Path) -> None:
    values = [Decimal("5.00"), Decimal("-0.50"), Decimal("1.25")]
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.decimal128(20, 2)), pa.array([0, 1, 2])], ["key", "id"])
    table = built(tmp_path / "t", rows, BY_KEY, verify=True)
    for probe, wanted in (
        (pa.array([5, 0], pa.int8()), [(0, 0)]),
        (pa.array([5, 50], pa.int64()), [(0, 0)]),
        (pa.array([Decimal("-0.5"), Decimal("1.2")], pa.decimal128(3, 1)), [(0, 1)]),
        (pa.array([Decimal("1.2500")], pa.decimal128(38, 20)), [(0, 2)]),
    ):
        assert pairs(table, table.find(BY_KEY, [probe]), "id") == wanted


def test_negative_zero_and_nan_equal_zero_and_nan_as_in_sql(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0.0, float("nan"), 3.0]), pa.array([0, 1, 2])], ["key", "id"])
    table = built(tmp_path / "t", rows, BY_KEY)
    found = table.find(BY_KEY, [pa.array([-0.0, float("nan"), float("-nan")])])
    assert pairs(table, found, "id") == [(0, 0), (1, 1), (2, 1)]
    assert pairs(table, table.find(BY_KEY, [pa.array([3], pa.int32())]), "id") == [(0, 2)]


def test_times_of_other_units_meet(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1_000_000, -1], pa.timestamp("us")), pa.array([0, 1])], ["key", "id"])
    table = built(tmp_path / "t", rows, BY_KEY)
    assert pairs(table, table.find(BY_KEY, [pa.array([1], pa.timestamp("s", "UTC"))]), "id") == [(0, 0)]
    nanoseconds = pa.array([-1000, -1001, -999], pa.timestamp("ns"))
    assert pairs(table, table.find(BY_KEY, [nanoseconds]), "id") == [(0, 1)]


def test_sliced_and_dictionary_encoded_probes_are_looked_up_by_their_values(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([("a", 1), ("b", 2), ("", 3)]), BY_KEY)
    probes = pa.array(["x", "y", "b", "", None, "a"]).slice(2)
    for one in (probes, probes.dictionary_encode(), pa.chunked_array([probes]), probes.cast(pa.large_string())):
        assert pairs(table, table.find(BY_KEY, [one]), "id") == [(0, 1), (1, 2), (3, 0)]


def test_a_column_of_an_index_need_not_be_stored(tmp_path: Path) -> None:
    rows = batch_of([("a", 1), ("b", None), (None, 3)])
    table = built(tmp_path / "t", rows, BY_KEY, IndexKey.equal("number"), stored=["id"])
    assert table.schema.names == ["id"]
    assert pairs(table, table.find(IndexKey.equal("number"), [pa.array([3, 1])]), "id") == [(0, 2), (1, 0)]
    with pytest.raises(DimensionError, match="no column 'key'"):
        table.take(np.array([0]), ["key"])


def test_no_columns_may_be_asked_for(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([("a", 1)] * 3), BY_KEY)
    assert table.take(np.array([0, 2]), []).num_rows == 2


def test_a_table_of_no_rows_answers_with_nothing(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([]), BY_KEY)
    assert (table.rows, list(table.scan())) == (0, [])
    assert len(table.find(BY_KEY, [pa.array(["a"])]).row) == 0


@pytest.mark.parametrize("same", [False, True], ids=["different keys", "one key"])
def test_memory_too_small_for_the_rows_changes_no_answer(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "MAX_RUNS", 4)
    count = 40_000
    keys = pa.array(["the same"] * count if same else [f"key {one % 30_000}" for one in range(count)])
    columns = [keys, pa.array(range(count)), pa.array([f"{one:060}" for one in range(count)])]
    rows = pa.RecordBatch.from_arrays(columns, ["key", "id", "text"])
    files = HastyFiles()
    indexes = [BY_KEY, IndexKey.equal("id"), IndexKey(IndexKind.RANGE, ("id", "id"))]
    builder = TableBuilder(tmp_path / "t", rows.schema, indexes, memory_mb=1, files=files)
    spilled = 0
    for start in range(0, count, 500):
        builder.add(rows.slice(start, 500))
        spilled += (tmp_path / "t" / "rows.spill").exists()
    assert spilled
    builder.finish()
    table = DimensionTable.open(tmp_path / "t", check=True)
    assert not list((tmp_path / "t").glob("*.spill"))
    found = table.find(BY_KEY, [keys.slice(20_000, 3)])
    if same:
        assert found.probe.tolist() == sorted([0, 1, 2] * count)
    else:
        assert pairs(table, found, "id") == [(0, 20_000), (1, 20_001), (2, 20_002)]
    found = table.find(BY_KEY, [keys.slice(5, 1)])
    assert len(found.row) == count if same else pairs(table, found, "id") == [(0, 30_005), (0, 5)]
    for key in indexes[1:]:
        found = table.find(key, [rows.column(1).slice(20_000, 3)])
        assert pairs(table, found, "text") == [(at, f"{20_000 + at:060}") for at in range(3)]
    assert sorted(one for batch in table.scan(["id"]) for one in batch.column(0).to_pylist()) == list(range(count))


def test_an_open_table_answers_after_its_directory_was_removed(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([("a", 1), ("b", 2)]), BY_KEY)
    shutil.rmtree(tmp_path / "t")
    assert pairs(table, table.find(BY_KEY, [pa.array(["b"])]), "id") == [(0, 1)]


def test_an_index_is_added_later_and_all_who_have_the_table_open_can_ask_it(tmp_path: Path) -> None:
    mine = built(tmp_path / "t", batch_of([("a", 1), ("b", 2), ("c", 2)]), BY_KEY)
    other = DimensionTable.open(tmp_path / "t")
    by_number = IndexKey.equal("number")
    with pytest.raises(DimensionError, match=r"has no index equal \(number\); it has equal \(key\)"):
        other.find(by_number, [pa.array([2])])
    mine.add_index(by_number)
    mine.add_index(by_number)
    assert mine.indexes == (BY_KEY, by_number)
    for table in (mine, other, DimensionTable.open(tmp_path / "t", check=True)):
        assert pairs(table, table.find(by_number, [pa.array([2])]), "id") == [(0, 1), (0, 2)]


def test_an_index_of_columns_that_are_not_stored_cannot_be_added(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([("a", 1)]), BY_KEY, stored=["id"])
    with pytest.raises(DimensionError) as caught:
        table.add_index(IndexKey.equal("number"))
    assert caught.value.name == "DIMENSION_COLUMN"


@pytest.mark.parametrize(
    ("key", "name", "words"),
    [
        (IndexKey.equal("kye"), "DIMENSION_COLUMN", "did you mean 'key'"),
        (IndexKey.equal(), "DIMENSION_KEY", "cannot have the columns"),
        (IndexKey.equal("nested"), "DIMENSION_KEY", "cannot be a key"),
        (IndexKey(IndexKind.RANGE, ("id",)), "DIMENSION_KEY", "cannot have the columns"),
        (IndexKey(IndexKind.RANGE, ("key", "key2")), "DIMENSION_KEY", "cannot be the start and the end"),
        (IndexKey(IndexKind.NETWORK, ("id",)), "DIMENSION_KEY", "is no STRING"),
        (IndexKey(IndexKind.PREFIX, ("id",)), "DIMENSION_KEY", "is no STRING"),
    ],
)
def test_an_index_that_cannot_be_is_refused_with_the_reason(
    key: IndexKey, name: str, words: str, tmp_path: Path
) -> None:
    schema = pa.schema(
        [("key", pa.string()), ("key2", pa.string()), ("id", pa.int64()), ("nested", pa.list_(pa.int32()))]
    )
    with pytest.raises(DimensionError, match=words) as caught:
        TableBuilder(tmp_path / "t", schema, [key], files=HastyFiles())
    assert caught.value.name == name


def test_probes_of_a_type_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    table = built(tmp_path / "t", batch_of([("a", 1)]), BY_KEY, IndexKey.equal("number"))
    with pytest.raises(DimensionError, match="'key' is a STRING, what it is compared with is an integer or DECIMAL"):
        table.find(BY_KEY, [pa.array([1])])
    with pytest.raises(DimensionError, match="'number' is an integer or DECIMAL"):
        table.find(IndexKey.equal("number"), [pa.array([1.0])])
    with pytest.raises(DimensionError, match="asked with 2 columns instead of 1"):
        table.find(BY_KEY, [pa.array(["a"]), pa.array(["a"])])
    assert len(table.find(BY_KEY, [pa.nulls(3)]).row) == 0


def test_a_column_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DimensionError, match="cannot be stored"):
        TableBuilder(tmp_path / "t", pa.schema([("u", pa.uint64())]), [])


def test_another_seed_gives_other_hashes() -> None:
    from millstream.streams.dimension.key_values import Texts

    texts = [Texts(pa.array(["a", "b"]))]
    assert (KeyHash(b"1" * 32, 1).of(texts).high != KeyHash(b"2" * 32, 1).of(texts).high).all()
