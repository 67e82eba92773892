"""Nexmark's queries on Spark: the changes they tell add up to what plain loops over the same events answer.

A few cuts run with the other tests; all of them where MILLSTREAM_NEXMARK is "full" (`make nexmark`). The published texts
run beside ours where MILLSTREAM_NEXMARK_QUERIES names a copy of them.
"""

from __future__ import annotations

import csv
import datetime
import os
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from nexmark_answers import ANSWERS
from nexmark_events import COUNT, bids, made_events
from nexmark_published import needs_published
from nexmark_runs import Changes, Table, played
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

IS_FULL = os.environ.get("MILLSTREAM_NEXMARK", "") == "full"
full = pytest.mark.skipif(not IS_FULL, reason="a long one: make nexmark")

WITHIN_WATERMARK_MS = 3000
"""Times out of order by less than the 4 s that the watermark waits."""

BEYOND_WATERMARK_MS = 60_000

UPDATING = ("q3", "q4", "q9", "q15", "q16", "q17", "q18", "q19", "q20", "q23")
"""Those whose answer over the events so far is told at the end of each micro-batch."""

SHORT = ("q3", "q5", "q9", "q15", "q19")


def answer(name: str, count: int = COUNT, max_delay_ms: int = 0) -> Table:
    return Counter(ANSWERS[name](made_events(max_delay_ms)[:count]))


def found(name: str, changes: Changes, directory: Path) -> Table:
    if name == "q10":
        return written(directory)
    table = changes.table()
    if name == "q12":
        return without_windows(table)
    return table


def written(directory: Path) -> Table:
    """The rows of partitioned files, numbers as their texts; each partition is said to be whole."""
    rows: Table = Counter()
    for path in directory.glob("**/dt=*/hm=*/*"):
        if not path.name.startswith(("_", ".")):
            day, minute = path.parent.parent.name[3:], unquote(path.parent.name[3:])
            assert (path.parent / "_SUCCESS").is_file()
            with path.open(newline="") as lines:
                rows.update((*line[:3], moment_of(line[3]), line[4], day, minute) for line in csv.reader(lines))
    return rows


def moment_of(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def without_windows(table: Table) -> Table:
    counts: Counter[int] = Counter()
    for (bidder, count, start, end), times in table.items():
        assert (end - start).total_seconds() == 10
        counts[bidder] += count * times
    return Counter(counts.items())


def expected(name: str, max_delay_ms: int) -> Table:
    if name != "q10":
        return answer(name, max_delay_ms=max_delay_ms)
    texts: Table = Counter()
    for auction, bidder, price, moment, extra, day, minute in answer(name, max_delay_ms=max_delay_ms):
        texts[str(auction), str(bidder), str(price), moment, extra, day, minute] += 1
    return texts


def held(
    spark: SparkSession,
    directory: Path,
    name: str,
    *,
    rows: int,
    max_delay_ms: int,
    batch: bool = False,
    published: bool = False,
) -> None:
    """The query's table at the end, and at the end of each micro-batch where it is told there."""
    changes = played(spark, directory, name, rows=rows, max_delay_ms=max_delay_ms, batch=batch, published=published)
    if name in UPDATING and not batch:
        for number in range(1, -(-COUNT // rows) + 1):
            told, wanted = changes.table(number), answer(name, number * rows, max_delay_ms)
            assert told == wanted, f"after micro-batch {number}: {differences(told, wanted)}"
    at_end, wanted = found(name, changes, directory), expected(name, max_delay_ms)
    assert at_end == wanted, differences(at_end, wanted)
    assert (changes.progress.rows_in, changes.progress.late) == (COUNT, 0)


def differences(told: Table, wanted: Table) -> str:
    return f"told and wrong {list((told - wanted).items())[:3]}, not told {list((wanted - told).items())[:3]}"


@pytest.mark.parametrize("name", SHORT)
def test_five_micro_batches_out_of_order_within_the_watermark_give_the_answer(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    held(spark, tmp_path, name, rows=COUNT // 5, max_delay_ms=WITHIN_WATERMARK_MS)


@needs_published
@pytest.mark.parametrize("batches", [1, 5, 50] if IS_FULL else [5])
@pytest.mark.parametrize("name", list(ANSWERS) if IS_FULL else ["q0", *SHORT])
def test_published_texts_give_the_same_answer(name: str, batches: int, spark: SparkSession, tmp_path: Path) -> None:
    held(spark, tmp_path, name, rows=COUNT // batches, max_delay_ms=WITHIN_WATERMARK_MS, published=True)


@full
@needs_published
@pytest.mark.parametrize("name", list(ANSWERS))
def test_published_texts_give_the_same_answer_in_batch_mode(name: str, spark: SparkSession, tmp_path: Path) -> None:
    held(spark, tmp_path, name, rows=COUNT, max_delay_ms=WITHIN_WATERMARK_MS, batch=True, published=True)


@full
@pytest.mark.parametrize("batches", [1, 5, 50])
@pytest.mark.parametrize("name", list(ANSWERS))
def test_every_cut_gives_the_answer(name: str, batches: int, spark: SparkSession, tmp_path: Path) -> None:
    held(spark, tmp_path, name, rows=COUNT // batches, max_delay_ms=0)


@full
@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in SHORT])
def test_order_within_the_watermark_does_not_matter(name: str, spark: SparkSession, tmp_path: Path) -> None:
    held(spark, tmp_path, name, rows=COUNT // 5, max_delay_ms=WITHIN_WATERMARK_MS)


@full
@pytest.mark.parametrize("name", list(ANSWERS))
def test_batch_mode_gives_the_answer(name: str, spark: SparkSession, tmp_path: Path) -> None:
    held(spark, tmp_path, name, rows=COUNT, max_delay_ms=WITHIN_WATERMARK_MS, batch=True)


def test_bids_beyond_the_watermark_are_counted_and_in_no_session(spark: SparkSession, tmp_path: Path) -> None:
    changes = played(spark, tmp_path, "q11", rows=COUNT // 10, max_delay_ms=BEYOND_WATERMARK_MS)
    in_sessions = sum(row[1] * times for row, times in changes.table().items())
    assert changes.progress.late > 0
    assert in_sessions + changes.progress.late == len(bids(made_events(BEYOND_WATERMARK_MS)))
