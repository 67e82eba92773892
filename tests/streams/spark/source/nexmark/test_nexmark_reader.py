"""How a nexmark table is read: cuts, ends, ticks, and tables that ask for what there is not."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.streams.connectors.nexmark.settings import NexmarkSettings
from millstream.streams.errors import JobError, SqlError
from millstream.streams.jobs.nexmark_source import NexmarkSource
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.sources import ends_by_itself
from millstream.streams.plan.nodes import QueryPlan, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.plan.types import BIGINT, INT, DataType, Field, TypeKind
from millstream.streams.spark.source.made_rows import MadeBatchReader, MadeStreamReader
from millstream.streams.spark.source.nexmark.columns import events_maker
from millstream.streams.spark.source.nexmark.spec import QUEUE, NexmarkSpec
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.spec import SourceColumn
from millstream.streams.sql.compiler import SqlSession

BID = DataType(TypeKind.ROW, fields=(Field("auction", BIGINT), Field("price", BIGINT)))
SPEC = NexmarkSpec(
    "events",
    NexmarkSettings(events=100),
    base_time_ms=0,
    columns=(SourceColumn("event_type", INT), SourceColumn("bid", BID)),
    start=Position({QUEUE: 0}, name="events"),
    max_rows=40,
    final_tick=True,
    queues=True,
)


def cuts(spec: NexmarkSpec, *, is_bounded: bool) -> list[Position]:
    """The ends of the micro-batches until nothing comes any more."""
    reader = MadeStreamReader(spec, events_maker)
    if is_bounded:
        reader.prepareForTriggerAvailableNow()
    ends = [reader.initialOffset()]
    while len(ends) < 10:
        end = reader.latestOffset(ends[-1], reader.getDefaultReadLimit())
        if end == ends[-1]:
            break
        ends.append(end)
    return [Position.from_json(end) for end in ends[1:]]


def rows(reader: MadeStreamReader | MadeBatchReader, tasks: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for task in tasks:  # type: ignore[attr-defined]
        found.extend(pa.Table.from_batches(list(reader.read(task))).to_pylist())
    return found


def test_a_bounded_run_reads_every_event_once_and_ends_with_a_tick() -> None:
    ends = cuts(SPEC, is_bounded=True)
    assert [(end.offset(QUEUE), end.ended) for end in ends] == [(40, False), (80, False), (100, False), (100, True)]


def test_a_run_without_end_waits_at_the_last_event_without_a_tick() -> None:
    assert [end.offset(QUEUE) for end in cuts(SPEC, is_bounded=False)] == [40, 80, 100]


def test_micro_batches_bring_the_rows_that_a_batch_brings() -> None:
    stream = MadeStreamReader(SPEC, events_maker)
    begin, streamed = SPEC.start, []
    for end in cuts(SPEC, is_bounded=True):
        streamed.extend(rows(stream, stream.partitions(begin.to_json(), end.to_json())))
        begin = end
    whole = MadeBatchReader(replace(SPEC, end=Position({QUEUE: 100})), events_maker)
    assert rows(whole, whole.partitions()) == streamed
    assert len(streamed) == 101
    assert [row["__tick"] is not None for row in streamed].index(True) == 100
    assert {row["__queue"] for row in streamed[:100]} == {QUEUE}
    assert streamed[0]["bid"] is None
    assert set(streamed[5]["bid"]) == {"auction", "price"}  # type: ignore[call-overload]


def test_events_at_their_rate_are_not_read_before_their_turn() -> None:
    slow = MadeStreamReader(
        replace(SPEC, settings=NexmarkSettings(first_rate=1, next_rate=1), is_limited=True), events_maker
    )
    first = slow.latestOffset(slow.initialOffset(), ReadAllAvailable())
    assert Position.from_json(first).offset(QUEUE) == 1
    assert slow.latestOffset(first, ReadMaxRows(40)) == first


def test_a_bounded_run_does_not_wait_for_turns_and_reads_to_the_end() -> None:
    slow = replace(SPEC, settings=NexmarkSettings(events=100, first_rate=1, next_rate=1), is_limited=True)
    assert [(end.offset(QUEUE), end.ended) for end in cuts(slow, is_bounded=True)][-1] == (100, True)


@pytest.mark.parametrize(
    ("options", "events"),
    [
        ("'events.num' = '100'", 100),
        ("'events.num' = '100', 'stop-at' = '-1'", 100),
        ("'events.num' = '100', 'stop-at' = '30'", 30),
        ("'events.num' = '100', 'stop-at' = '300'", 100),
        ("'stop-at' = '30'", 30),
    ],
)
def test_a_stop_ends_the_table_before_all_its_events(options: str, events: int) -> None:
    source = NexmarkSource(table("event_type INT", options), JobSettings.of({}, ""))
    assert source.end().offset(QUEUE) == events


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ("'events.num' = '9'", True),
        ("'stop-at' = '9'", True),
        ("'events.num' = '9', 'keep-alive' = 'TRUE'", False),
        ("'events.num' = '0'", False),
        ("'events.num' = '9', 'rate.limited' = 'true'", False),
        ("'events.num' = '9', 'max-emit-speed' = 'false'", False),
        ("'events.num' = '9', 'max-emit-speed' = 'true', 'rate.limited' = 'true'", True),
    ],
)
def test_a_job_ends_behind_the_last_event_unless_it_is_kept_alive_or_follows_the_clock(
    options: str, ends: bool
) -> None:
    assert ends_by_itself(table("event_type INT", options)) is ends


@pytest.mark.parametrize("stop", ["0", "-2", "2026-01-31 12:00:00"])
def test_a_stop_that_is_no_number_of_events_is_refused(stop: str) -> None:
    with pytest.raises(SqlError, match=r"stop-at.*a number of events, or -1"):
        table("event_type INT", f"'stop-at' = '{stop}'")


def test_a_bounded_run_over_a_table_without_end_is_refused() -> None:
    with pytest.raises(JobError, match=r"has no end.*Set 'events\.num'"):
        cuts(replace(SPEC, settings=NexmarkSettings()), is_bounded=True)


def table(columns: str, options: str = "'events.num' = '0'") -> Table:
    (plan,) = SqlSession().compile(
        f"CREATE TABLE events ({columns}) WITH ('connector' = 'nexmark', 'base-time' = '5', {options});"
        " SELECT * FROM events"
    )[1:]
    assert isinstance(plan, QueryPlan)
    return next(scans_of(plan.query)).table


@pytest.mark.parametrize(
    ("columns", "name"),
    [("bidder BIGINT", "no bidder"), ("event_type INT, bid ROW<auction BIGINT, prise BIGINT>", r"no bid\.prise")],
)
def test_a_column_that_events_do_not_have_is_refused_with_those_that_they_have(columns: str, name: str) -> None:
    with pytest.raises(JobError, match=f"{name}.*They have .*(event_type|price)"):
        NexmarkSource(table(columns), JobSettings.of({}, ""))


def test_the_first_events_time_is_kept_where_the_job_begins() -> None:
    assert NexmarkSource(table("event_type INT"), JobSettings.of({}, "")).beginning().cut_ms == 5
