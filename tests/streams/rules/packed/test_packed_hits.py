"""Hits to records: where each goes, how many a record has, and what becomes of hits that only count."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.streams.rules.packed.packer import (
    MAX_RECORD_BYTES,
    OFFSET,
    QUEUE,
    HitsPacker,
    PackedColumns,
    PackedRecord,
)
from millstream.streams.rules.packed.record import RowsHead, unpack

HEAD = RowsHead("job", 3, "", "", 0, 0, 0, 0, watermark_us=17)
QUEUES = ("b/0", "b/1", "b/2")
ROWS = PackedColumns.of(("event_time", "measured"))
COUNTS = PackedColumns.of(("rule", "group_key", "event_time", "hits"))
SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("group_key", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("measured", pa.string()),
        ("measure", pa.string()),
        ("window_ms", pa.int64()),
        ("hits", pa.int64()),
        (QUEUE, pa.string()),
        (OFFSET, pa.int64()),
    ]
)
TEN_MINUTES_MS = 600_000


def hit(offset: int, *, rule: str = "r", key: str | None = "k", second: int = 0, measure: str | None = "events",
        queue: str = "s/0", window_ms: int = TEN_MINUTES_MS, measured: str | None = None) -> dict[str, Any]:  # fmt: skip
    return {
        "rule": rule, "group_key": key, "measured": measured, "measure": measure, "window_ms": window_ms, "hits": 1,
        "event_time": datetime.datetime.fromtimestamp(second, datetime.UTC), QUEUE: queue, OFFSET: offset,
    }  # fmt: skip


def packed(columns: PackedColumns, *batches: list[dict[str, Any]]) -> list[PackedRecord]:
    packer = HitsPacker(columns, QUEUES, HEAD)
    records = [one for rows in batches for one in packer.add(pa.RecordBatch.from_pylist(rows, SCHEMA))]
    return [*records, *packer.finish()]


def opened(record: PackedRecord) -> tuple[RowsHead, list[dict[str, Any]]]:
    head, rows = unpack(record.text)
    assert isinstance(head, RowsHead)
    assert rows is not None
    return head, rows.to_pylist()


def test_a_reader_that_does_not_ask_how_many_hits_a_row_is_gets_each_hit() -> None:
    assert not ROWS.merges
    assert COUNTS.merges
    assert not PackedColumns.of(("rule", "hits", "event")).merges
    assert set(COUNTS.input_columns) == {"rule", "group_key", "event_time", "hits", "measure", "window_ms"}


def test_records_have_1000_rows_at_most_and_tell_where_they_come_from() -> None:
    batches = [[hit(offset, second=offset) for offset in range(start, start + 500)] for start in range(0, 2_500, 500)]
    heads = [opened(one)[0] for one in packed(ROWS, *batches)]
    assert [(one.first, one.last, one.number, one.rows) for one in heads] == [
        (0, 999, 0, 1_000), (1_000, 1_999, 1, 1_000), (2_000, 2_499, 2, 500),
    ]  # fmt: skip
    assert {(one.origin, one.batch_id, one.queue, one.watermark_us) for one in heads} == {("job", 3, "s/0", 17)}
    assert [one.newest_us for one in heads] == [999_000_000, 1_999_000_000, 2_499_000_000]


@given(st.lists(st.tuples(st.sampled_from(["r", "q"]), st.none() | st.sampled_from("abcdef")), max_size=60))
def test_every_hit_is_there_once_and_a_key_has_one_queue(keys: list[tuple[str, str | None]]) -> None:
    hits = [hit(number, rule=rule, key=key, measured=str(number)) for number, (rule, key) in enumerate(keys)]
    places: dict[Any, set[str]] = {}
    found: list[Any] = []
    for record in packed(ROWS, hits):
        for row in opened(record)[1]:
            places.setdefault((row["rule"], row["group_key"]), set()).add(record.into)
            found.append((row["rule"], row["group_key"], int(row["measured"])))
    assert sorted(found, key=lambda one: one[2]) == [(*key, number) for number, key in enumerate(keys)]
    assert all(len(queues) == 1 for queues in places.values())


def test_queues_of_the_source_have_records_of_their_own() -> None:
    records = packed(ROWS, [hit(5, queue="s/1"), hit(7), hit(8)])
    assert sorted((opened(one)[0].queue, opened(one)[0].last) for one in records) == [("s/0", 8), ("s/1", 5)]


def test_hits_that_only_count_become_one_row_of_each_key_and_slot() -> None:
    # Five minutes divide ten and a quarter of an hour.
    hits = [hit(0, second=10), hit(1, second=299), hit(2, second=300), hit(3, key="other", second=20), hit(4, second=1)]
    rows = [row for one in packed(COUNTS, hits) for row in opened(one)[1]]
    told = {(row["group_key"], int(row["event_time"].timestamp())): row["hits"] for row in rows}
    assert told == {("k", 299): 3, ("k", 300): 1, ("other", 20): 1}
    assert set(rows[0]) == {"rule", "group_key", "event_time", "hits"}
    assert sum(opened(one)[0].rows for one in packed(COUNTS, hits)) == 5


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.sampled_from(["a", "b"]), st.sampled_from([7, 10, 60])), max_size=40)
)
def test_merged_hits_count_the_same_in_windows_of_any_time_zone(events: list[tuple[int, str, int]]) -> None:
    hits = [hit(number, rule=f"r{minutes}", key=key, second=second, window_ms=minutes * 60_000)
            for number, (second, key, minutes) in enumerate(events)]  # fmt: skip
    for zone_s in (0, 45 * 60):
        wanted: Counter[Any] = Counter()
        for second, key, minutes in events:
            wanted[key, minutes, (second + zone_s) // (minutes * 60)] += 1
        found: Counter[Any] = Counter()
        for row in (row for one in packed(COUNTS, hits) for row in opened(one)[1]):
            minutes = int(row["rule"][1:])
            second = int(row["event_time"].timestamp())
            found[row["group_key"], minutes, (second + zone_s) // (minutes * 60)] += row["hits"]
        assert found == wanted


def test_hits_of_other_rules_stay_rows_beside_those_that_count() -> None:
    records = packed(COUNTS, [hit(0), hit(1), hit(2, measure="values"), hit(3, measure="values"), hit(4, measure=None)])
    told = {opened(one)[0].shape: len(opened(one)[1]) for one in records}
    assert told == {"counts": 1, "rows": 3}


def test_rows_that_are_large_are_several_records() -> None:
    text = "x" * (MAX_RECORD_BYTES // 3)
    records = packed(ROWS, [hit(number, measured=text) for number in range(8)])
    rows = [len(opened(one)[1]) for one in records]
    assert sum(rows) == 8
    assert max(rows) <= 3
    assert [opened(one)[0].number for one in records] == list(range(len(records)))


@pytest.mark.parametrize("columns", [ROWS, COUNTS])
def test_no_hits_are_no_records(columns: PackedColumns) -> None:
    assert packed(columns, []) == []
