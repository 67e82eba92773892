"""Made-up events as plain Python, for evaluations that share nothing with the engine but the generator."""

from __future__ import annotations

import datetime
import functools
from typing import Any

import pyarrow as pa

from millstream.streams.connectors.nexmark.events import FIELDS, EventMaker
from millstream.streams.connectors.nexmark.settings import NexmarkSettings

__all__ = ["BASE_TIME_MS", "COUNT", "RATE", "Event", "auctions", "bids", "made_events", "persons", "variables"]

Event = dict[str, Any]

COUNT = 2000
RATE = 20
"""Events a second: 100 s in all, some windows of every query."""

BASE_TIME_MS = 1_767_225_585_000
"""15 s before a year begins: the events lie on two days."""


@functools.cache
def made_events(max_delay_ms: int = 0, count: int = COUNT) -> list[Event]:
    """The events in the order of their numbers; times are naive datetimes in UTC."""
    settings = NexmarkSettings(events=count, first_rate=RATE, next_rate=RATE, disorder_ms=max_delay_ms, seed=7)
    columns = EventMaker(settings, BASE_TIME_MS).columns(0, count, FIELDS)
    rows = pa.RecordBatch.from_pydict(columns).to_pylist()
    return [_naive(row) for row in rows]


def variables(max_delay_ms: int = 0, count: int = COUNT) -> dict[str, str]:
    """What the script of the made-up events is told to make the same ones."""
    return {
        "EVENTS": str(count),
        "RATE": str(RATE),
        "BASE_TIME_MS": str(BASE_TIME_MS),
        "MAX_DELAY": f"{max_delay_ms} ms",
        "SEED": "7",
    }


def persons(events: list[Event]) -> list[Event]:
    return [event["person"] for event in events if event["event_type"] == 0]


def auctions(events: list[Event]) -> list[Event]:
    return [event["auction"] for event in events if event["event_type"] == 1]


def bids(events: list[Event]) -> list[Event]:
    return [event["bid"] for event in events if event["event_type"] == 2]


def _naive(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _naive(part) for name, part in value.items()}
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value
