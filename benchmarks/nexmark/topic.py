"""The made-up events as JSON: in a topic of a server, and as lines of a file."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.streams.connectors.nexmark.events import FIELDS, EventMaker
from millstream.streams.connectors.nexmark.settings import NexmarkSettings

__all__ = ["TOPIC", "event_bodies", "fill_topic", "write_lines"]

TOPIC = "nexmark"

BASE_TIME_MS = 1_767_225_600_000
_QUEUES = 4
_EVENTS_PER_CALL = 2_000
_KINDS = ("person", "auction", "bid")


def event_bodies(events: int, rate: int, *, seed: int = 1) -> Iterator[list[bytes]]:
    """The JSON of events 0 to `events`, some thousands at a time; `rate` events a second of event time."""
    maker = EventMaker(NexmarkSettings(events=events, first_rate=rate, next_rate=rate, seed=seed), BASE_TIME_MS)
    encoder = msgspec.json.Encoder(enc_hook=str)
    for start in range(0, events, _EVENTS_PER_CALL):
        columns = maker.columns(start, min(start + _EVENTS_PER_CALL, events), FIELDS)
        rows = pa.RecordBatch.from_pydict(columns).to_pylist()
        yield [encoder.encode(_with_texts(row)) for row in rows]


def fill_topic(nameserver: str, events: int, rate: int) -> None:
    """Make the topic `nexmark` with four queues and send the events to it in turns."""
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(TOPIC, read_queues=_QUEUES, write_queues=_QUEUES))
        for bodies in event_bodies(events, rate):
            client.send_many([Message(TOPIC, body) for body in bodies])


def write_lines(path: Path, events: int, rate: int) -> None:
    """The same events as lines of a file."""
    with path.open("wb") as file:
        for bodies in event_bodies(events, rate):
            file.write(b"\n".join(bodies) + b"\n")


def _with_texts(row: dict[str, Any]) -> dict[str, Any]:
    """The event's number and the row of its kind, times as SQL writes them."""
    kind = _KINDS[row["event_type"]]
    values = {
        name: _text(value) if isinstance(value, datetime.datetime) else value for name, value in row[kind].items()
    }
    return {"event_type": row["event_type"], kind: values}


def _text(moment: datetime.datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")
