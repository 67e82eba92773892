"""A job over an aggregate, a window, a join and a pattern, and what plain Python makes of the same messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from crash.job_batches import topic_rows
from crash.sink_databases import Rows, SinkDatabase
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig

__all__ = [
    "EVENTS",
    "KEYS",
    "NAMES",
    "WATERMARK_DELAY_S",
    "WINDOW_S",
    "Event",
    "OperatorJob",
    "database_tables",
    "differences",
    "expected_rows",
    "name_message",
]

EVENTS: Final = "events"
"""The topic of events; its queues become more while the job runs."""

NAMES: Final = "names"
"""The topic that events are joined with."""

KEYS: Final = 7
WATERMARK_DELAY_S: Final = 5
"""Seconds by which event time stays behind the newest event."""

WINDOW_S: Final = 20
"""Seconds of event time of a window."""

_START: Final = datetime(2026, 1, 1)

_TAKES_BACK: Final = ("-U", "-D")
_TOPICS: Final = ("sums", "windows", "joined", "matched")
_FILES: Final = ("windows", "joined", "matched")
_DEALT: Final = ("joined", "windows", "matched")
"""Rows that each go to one of the databases, in this order: Spark plans each sink anew at every start of the job."""


_SOURCES: Final = f"""
CREATE TABLE {EVENTS} (id INT, k INT, v INT, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '{WATERMARK_DELAY_S}' SECOND)
  WITH ('connector' = 'rocketmq', 'topic' = '{EVENTS}');
CREATE TABLE {NAMES} (id INT, word STRING) WITH ('connector' = 'rocketmq', 'topic' = '{NAMES}');
"""
_COLUMNS: Final = {
    "sums": "k INT, n BIGINT, total INT",
    "windows": "k INT, began STRING, n BIGINT, total INT",
    "joined": "id INT, word STRING",
    "matched": "k INT, low INT, high INT",
}
_SELECTS: Final = {
    "sums": f"SELECT k, COUNT(*) AS n, SUM(v) AS total FROM {EVENTS} GROUP BY k",
    "windows": f"""SELECT k, DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss') AS began, COUNT(*) AS n, SUM(v) AS total
  FROM TABLE(TUMBLE(TABLE {EVENTS}, DESCRIPTOR(ts), INTERVAL '{WINDOW_S}' SECOND))
  GROUP BY k, window_start, window_end""",
    "joined": f"SELECT e.id, n.word FROM {EVENTS} AS e JOIN {NAMES} AS n ON e.id = n.id",
    "matched": f"""SELECT k, low, high FROM {EVENTS} MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES A.id AS low, B.id AS high ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B) DEFINE B AS B.v > A.v)""",
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event; a second of event time passes from number to number."""

    id: int
    k: int
    v: int

    @property
    def moment(self) -> datetime:
        """Its event time."""
        return _START + timedelta(seconds=self.id)

    def message(self) -> Message:
        """The event as the job reads it."""
        row = {"id": self.id, "k": self.k, "v": self.v, "ts": f"{self.moment:%Y-%m-%d %H:%M:%S}"}
        return Message(EVENTS, json.dumps(row).encode())


def name_message(id: int) -> Message:
    """What joins the event of that number."""
    return Message(NAMES, json.dumps({"id": id, "word": f"w{id}"}).encode())


def database_tables(outputs: Sequence[str]) -> list[str]:
    """The statements that make the tables of these outputs, for any database."""
    made = []
    for output in outputs:
        for name, columns in _COLUMNS.items():
            plain = columns.replace("STRING", "TEXT").replace("k INT,", "k INT PRIMARY KEY,", int(name == "sums"))
            made.append(f"CREATE TABLE {output}_{name} ({plain})")
    return made


@dataclass(frozen=True)
class OperatorJob:
    """The job whose sinks begin with `output`: topics, files below `directory` and tables of `databases`."""

    output: str
    directory: Path
    databases: Sequence[SinkDatabase]

    def script(self) -> str:
        """One query with all the operators, each into a topic, a database and, unless its rows change, files."""
        tables, inserts = [_SOURCES], []
        for name, sink, options in self._sinks():
            key = ", PRIMARY KEY (k) NOT ENFORCED" if name == "sums" and "jdbc" in options else ""
            tables.append(f"CREATE TABLE {sink} ({_COLUMNS[name]}{key}) WITH ({options});")
            inserts.append(f"INSERT INTO {sink} {_SELECTS[name]};")
        return "\n".join([*tables, "EXECUTE STATEMENT SET BEGIN", *inserts, "END;"])

    def create_topics(self, client: BlockingClient) -> None:
        """The topics that it writes."""
        for name in _TOPICS:
            client.create_topic(TopicConfig(f"{self.output}-{name}", read_queues=2, write_queues=2))

    def found(self, client: BlockingClient) -> Iterator[tuple[str, str, Rows]]:
        """Of each sink what it is, the name of its rows, and those that stand in it; changes are added up."""
        for name in _TOPICS:
            yield f"topic {name}", name, self._in_topic(client, name)
        for name in _FILES:
            yield f"files {name}", name, self._in_files(name)
        for name, database in self._stored():
            yield f"{database.name} {name}", name, database.rows(f"{self.output}_{name}")

    # inside

    def _sinks(self) -> Iterator[tuple[str, str, str]]:
        """Of each sink the name of its rows, the name of its table, and its options."""
        for name in _TOPICS:
            kind = "changelog-json" if name == "sums" else "json"
            yield (
                name,
                f"topic_{name}",
                f"'connector' = 'rocketmq', 'topic' = '{self.output}-{name}', 'format' = '{kind}'",
            )
        for name in _FILES:
            path = self.directory / self.output / name
            yield name, f"files_{name}", f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'"
        for name, database in self._stored():
            table = f"'connector' = 'jdbc', 'table-name' = '{self.output}_{name}', {database.options}"
            yield name, f"{database.name}_{name}", table

    def _stored(self) -> Iterator[tuple[str, SinkDatabase]]:
        """The names of rows with a database that has them: changing rows are in all of them."""
        for database in self.databases:
            yield "sums", database
        for number, name in enumerate(_DEALT):
            yield name, self.databases[number % len(self.databases)]

    def _in_topic(self, client: BlockingClient, name: str) -> Rows:
        rows: Rows = Counter()
        for _, row in topic_rows(client, f"{self.output}-{name}"):
            changes = row.get("data", row)
            rows[tuple(changes.values())] += -1 if row.get("op") in _TAKES_BACK else 1
        return Counter({row: count for row, count in rows.items() if count})

    def _in_files(self, name: str) -> Rows:
        directory = self.directory / self.output / name
        return Counter(
            tuple(json.loads(line).values())
            for file in directory.glob("[!._]*")
            for line in file.read_text().splitlines()
        )


def expected_rows(events: Iterable[Event], named: Iterable[int], *, until: datetime) -> dict[str, Rows]:
    """What the job makes of these events and names once event time has come to `until`, by the name of the rows."""
    by_key: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda one: one.id):
        by_key.setdefault(event.k, []).append(event)
    known = set(named)
    windows: Rows = Counter()
    matched: Rows = Counter()
    for key, rows in by_key.items():
        for began, group in groupby(rows, _window_of):
            if began + timedelta(seconds=WINDOW_S) <= until:
                windows[key, f"{began:%Y-%m-%d %H:%M:%S}", *_count_and_total(list(group))] += 1
        matched.update(_matches([one for one in rows if one.moment <= until]))
    return {
        "sums": Counter([(key, *_count_and_total(rows)) for key, rows in by_key.items()]),
        "windows": windows,
        "joined": Counter((one.id, f"w{one.id}") for rows in by_key.values() for one in rows if one.id in known),
        "matched": matched,
    }


def differences(found: Iterable[tuple[str, str, Rows]], wanted: Mapping[str, Rows]) -> Iterator[tuple[str, str, Rows]]:
    """Of each sink of `OperatorJob.found` that has other rows than wanted: what it is, the difference, and which rows.

    The difference is "too much" or "missing". A name that is not in `wanted` is not looked at.
    """
    for sink, name, rows in found:
        if name in wanted and rows != wanted[name]:
            for words, those in (("too much", rows - wanted[name]), ("missing", wanted[name] - rows)):
                if those:
                    yield sink, words, those


def _window_of(event: Event) -> datetime:
    return event.moment - timedelta(seconds=event.id % WINDOW_S)


def _count_and_total(events: Sequence[Event]) -> tuple[int, int]:
    return len(events), sum(one.v for one in events)


def _matches(events: Sequence[Event]) -> Iterator[tuple[Any, ...]]:
    """Pairs of neighbours of a key that rise; the next pair begins behind the last."""
    place = 0
    while place + 1 < len(events):
        low, high = events[place], events[place + 1]
        if high.v > low.v:
            yield low.k, low.id, high.id
        place += 2 if high.v > low.v else 1
