"""The made-up auction house: what its events promise, whatever range of them is asked for."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.streams.connectors.nexmark.events import FIELDS, EventMaker
from millstream.streams.connectors.nexmark.settings import NexmarkSettings, NexmarkTimes

BASE_MS = 1_700_000_000_000
SETTINGS = NexmarkSettings(first_rate=100, next_rate=100)
KINDS = ("person", "auction", "bid")


def events(start: int, end: int, settings: NexmarkSettings = SETTINGS) -> list[dict[str, Any]]:
    columns = EventMaker(settings, BASE_MS).columns(start, end, FIELDS)
    made: list[dict[str, Any]] = pa.RecordBatch.from_pydict(columns).to_pylist()
    return made


def of(kind: int, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event[KINDS[kind]] for event in made if event["event_type"] == kind]


def moments_ms(made: list[dict[str, Any]]) -> list[int]:
    rows = [next(event[kind] for kind in KINDS if event[kind] is not None) for event in made]
    return [round(row["dateTime"].timestamp() * 1000) for row in rows]


def test_an_event_is_the_same_in_whatever_range_it_is_made() -> None:
    assert events(0, 300) == [*events(0, 7), *events(7, 151), *events(151, 300)]


def test_another_seed_makes_other_events() -> None:
    assert events(0, 50) != events(0, 50, replace(SETTINGS, seed=2))


def test_fifty_events_are_one_person_three_auctions_and_forty_six_bids() -> None:
    for start in (0, 13, 200):
        assert Counter(event["event_type"] for event in events(start, start + 50)) == {0: 1, 1: 3, 2: 46}


def test_each_event_fills_the_column_of_its_kind_alone() -> None:
    for event in events(0, 100):
        assert [kind for kind in KINDS if event[kind] is not None] == [KINDS[event["event_type"]]]


def test_persons_and_auctions_are_numbered_without_gaps() -> None:
    made = events(0, 500)
    assert [person["id"] for person in of(0, made)] == list(range(1000, 1010))
    assert [auction["id"] for auction in of(1, made)] == list(range(1000, 1030))


def test_bids_name_open_auctions_and_those_soon_to_come() -> None:
    made = events(0, 10_000)
    newest = 999
    for event in made:
        if event["event_type"] == 1:
            newest = event["auction"]["id"]
        elif event["event_type"] == 2:
            assert newest - 200 <= event["bid"]["auction"] <= newest + 10


def test_half_of_the_bids_are_on_hot_auctions_where_one_in_two_is_not() -> None:
    bids = of(2, events(0, 20_000))
    hot = sum(1 for bid in bids if bid["auction"] % 100 == 0) / len(bids)
    assert 0.47 < hot < 0.55


def test_without_disorder_times_rise_at_the_rate_from_the_first_events_time() -> None:
    assert moments_ms(events(0, 250)) == [BASE_MS + number * 10 for number in range(250)]


def test_with_disorder_an_event_lies_at_most_that_long_before_its_turn() -> None:
    moments = moments_ms(events(0, 2000, replace(SETTINGS, disorder_ms=3000)))
    delays = [BASE_MS + number * 10 - moment for number, moment in enumerate(moments)]
    assert 0 <= min(delays) < 30
    assert 2970 < max(delays) <= 3000


def test_a_square_rate_goes_from_the_first_to_the_next_and_back() -> None:
    times = NexmarkTimes(NexmarkSettings(first_rate=10, next_rate=100, period_ms=20_000))
    # Ten seconds at 10 a second are 100 events, the next ten at 100 a second are 1,000.
    assert times.turns_us(np.array([0, 99, 100, 101, 1100, 1101])).tolist() == [
        0, 9_900_000, 10_000_000, 10_010_000, 20_000_000, 20_100_000,
    ]  # fmt: skip
    assert times.events_until(9_950_000) == 100
    assert times.events_until(20_050_000) == 1101


def test_events_are_about_as_large_as_they_are_to_be() -> None:
    for kind, size in ((0, 200), (1, 500), (2, 200)):
        rows = of(kind, events(0, 20_000, replace(SETTINGS, bid_bytes=200)))
        sizes = [sum(len(value) if isinstance(value, str) else 8 for value in row.values()) for row in rows]
        assert sum(sizes) / len(sizes) == pytest.approx(size, rel=0.1)


def test_auctions_end_after_they_begin() -> None:
    for auction in of(1, events(0, 5000)):
        assert auction["expires"] - auction["dateTime"] >= datetime.timedelta(milliseconds=1)
