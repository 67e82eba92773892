"""CREATE TABLE as the SDK writes it: topics that are read, and what a stream is written to."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.streams.errors import SqlError
from millstream.streams.plan.types import Schema
from millstream.streams.sdk.schemas import Columns, column_text, type_text
from millstream.streams.sdk.sql_text import Duration, interval, listed, literal, quoted

__all__ = ["EVENT_TIME", "Start", "TopicTable", "create_table", "sink_table"]

EVENT_TIME = "event_time"
"""The column of event time where `timestamp` is an expression or left out."""

Start = str | int | datetime.datetime
"""Where a job without a checkpoint begins: "earliest", "latest", a store time, or the offsets of queues."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_OWN_TIMES = {"born": "born-timestamp", "store": "store-timestamp"}


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic as a table. `timestamp` is a column, "born" or "store", or an expression of SQL."""

    name: str
    topic: str
    schema: Columns
    format: str
    timestamp: str | None
    watermark: Duration | None
    start: Start
    options: Mapping[str, str] = field(default_factory=dict)

    def statement(self) -> str:
        """The CREATE TABLE."""
        columns, time = [column_text(self.schema)], EVENT_TIME
        timestamp = self.timestamp or ("born" if self.watermark is not None else None)
        if timestamp in _OWN_TIMES:
            key = _OWN_TIMES[timestamp]
            columns.append(f"{quoted(EVENT_TIME)} TIMESTAMP_LTZ(3) METADATA FROM '{key}' VIRTUAL")
        elif timestamp is not None and _NAME.fullmatch(timestamp):
            time = timestamp
        elif timestamp is not None:
            columns.append(f"{quoted(EVENT_TIME)} AS {timestamp}")
        if timestamp is not None:
            delay = self.watermark if self.watermark is not None else "0 s"
            columns.append(f"WATERMARK FOR {quoted(time)} AS {quoted(time)} - {interval(delay)}")
        options = {"connector": "rocketmq", "topic": self.topic, "format": self.format, **_startup(self.start)}
        return create_table(self.name, columns, {**options, **self.options})


def create_table(name: str, columns: list[str], options: Mapping[str, str]) -> str:
    """A CREATE TABLE of parts."""
    pairs = ",\n  ".join(f"{literal(key)} = {literal(value)}" for key, value in options.items())
    return f"CREATE TABLE {quoted(name)} (\n  {(',' + chr(10) + '  ').join(columns)}\n) WITH (\n  {pairs}\n)"


def sink_table(name: str, schema: Schema, options: Mapping[str, str], key: tuple[str, ...] = ()) -> str:
    """The table that takes the rows of a schema; those of one `key` replace each other."""
    for one in key:
        if schema.find(one) is None:
            remedy = f"Columns: {', '.join(schema.names)}."
            raise SqlError("SQL_UNKNOWN_COLUMN", f'There is no column "{one}" to be a key.', remedy=remedy)
    columns = [
        f"{quoted(of.name)} {type_text(of.type.as_nullable(of.name not in key and of.type.nullable))}"
        for of in schema.fields
    ]
    if key:
        columns.append(f"PRIMARY KEY ({listed(key)}) NOT ENFORCED")
    return create_table(name, columns, options)


def _startup(start: Start) -> dict[str, str]:
    if isinstance(start, datetime.datetime):
        moment = start.replace(tzinfo=datetime.UTC) if start.tzinfo is None else start
        start = round(moment.timestamp() * 1000)
    if isinstance(start, int):
        return {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": str(start)}
    if "offset:" in start:
        return {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": start}
    mode = f"{start}-offset" if start in ("earliest", "latest") else start
    return {"scan.startup.mode": mode}
