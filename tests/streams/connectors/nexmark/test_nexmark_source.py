"""How a nexmark table is read: cuts, ends, ticks, and tables that ask for what there is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.streams.connectors.nexmark.source import QUEUE
from millstream.streams.errors import JobError, SqlError
from millstream.streams.jobs.outputs import ends_by_itself
from millstream.streams.plan.nodes import QueryPlan, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.connected import (
    ConnectedBatchReader,
    ConnectedSource,
    ConnectedSpec,
    ConnectedStreamReader,
)
from millstream.streams.spark.source.position import Position
from millstream.streams.sql.session.compiler import SqlSession
from table_reads import rows_of_tasks, spec_of_table

COLUMNS = "event_type INT, bid ROW<auction BIGINT, price BIGINT>"


def spec_of(directory: Path, options: str = "'events.num' = '100'", *, batch: bool = False) -> ConnectedSpec:
    start = Position({QUEUE: 0}, name="events")
    read = table(COLUMNS, options)
    return spec_of_table(read, directory, start=start, max_rows=40, final_tick=True, queues=True, batch=batch)


def cuts(spec: ConnectedSpec, *, is_bounded: bool) -> list[Position]:
    """The ends of the micro-batches until nothing comes any more."""
    reader = ConnectedStreamReader(spec)
    if is_bounded:
        reader.prepareForTriggerAvailableNow()
    ends = [reader.initialOffset()]
    while len(ends) < 10:
        end = reader.latestOffset(ends[-1], reader.getDefaultReadLimit())
        if end == ends[-1]:
            break
        ends.append(end)
    return [Position.from_json(end) for end in ends[1:]]


def test_a_bounded_run_reads_every_event_once_and_ends_with_a_tick(tmp_path: Path) -> None:
    ends = cuts(spec_of(tmp_path), is_bounded=True)
    assert [(end.offset(QUEUE), end.ended) for end in ends] == [(40, False), (80, False), (100, False), (100, True)]


def test_a_run_without_end_waits_at_the_last_event_without_a_tick(tmp_path: Path) -> None:
    assert [end.offset(QUEUE) for end in cuts(spec_of(tmp_path), is_bounded=False)] == [40, 80, 100]


def test_micro_batches_bring_the_rows_that_a_batch_brings(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    stream = ConnectedStreamReader(spec)
    begin, streamed = spec.start, []
    for end in cuts(spec, is_bounded=True):
        streamed.extend(rows_of_tasks(stream, stream.partitions(begin.to_json(), end.to_json())))
        begin = end
    whole = ConnectedBatchReader(spec_of(tmp_path, batch=True))
    assert rows_of_tasks(whole, whole.partitions()) == streamed
    assert len(streamed) == 101
    assert [row["__tick"] is not None for row in streamed].index(True) == 100
    assert {row["__queue"] for row in streamed[:100]} == {QUEUE}
    assert streamed[0]["bid"] is None
    assert set(streamed[5]["bid"]) == {"auction", "price"}


SLOW = "'first-event.rate' = '1', 'next-event.rate' = '1', 'rate.limited' = 'true'"


def test_events_at_their_rate_are_not_read_before_their_turn(tmp_path: Path) -> None:
    slow = ConnectedStreamReader(spec_of(tmp_path, SLOW))
    first = slow.latestOffset(slow.initialOffset(), ReadAllAvailable())
    assert Position.from_json(first).offset(QUEUE) == 1
    assert slow.latestOffset(first, ReadMaxRows(40)) == first


def test_a_bounded_run_does_not_wait_for_turns_and_reads_to_the_end(tmp_path: Path) -> None:
    slow = spec_of(tmp_path, f"'events.num' = '100', {SLOW}")
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
    source = ConnectedSource(table("event_type INT", options), "", 0)
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


def test_a_bounded_run_over_a_table_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"has no end.*Set 'events\.num'"):
        cuts(spec_of(tmp_path, "'events.num' = '0'"), is_bounded=True)


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
        ConnectedSource(table(columns), "", 0)


def test_the_first_events_time_is_kept_where_the_job_begins() -> None:
    assert ConnectedSource(table("event_type INT"), "", 0).beginning().cut_ms == 5
