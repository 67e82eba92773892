"""The connector `jdbc`: a database table, as source, sink and lookup table."""

from __future__ import annotations

from typing import Final

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import (
    CHANGES_OPTIONS,
    DEAD_LETTER_OPTIONS,
    LOOKUP_OPTIONS,
    Option,
    choice,
    count,
    duration,
    flag,
    text,
)

__all__ = ["JDBC", "NOTES_TABLE"]

NOTES_TABLE: Final = "millstream_batches"
"""The table of notes about micro-batches, where no option gives another name."""

_OPTIONS: tuple[Option, ...] = (
    text("url", "The database.", required=True, pattern=r"(jdbc:)?[a-zA-Z0-9+]+:.+", wanted="a URL such as jdbc:postgresql://host:5432/name"),
    text("table-name", "The table there.", required=True),
    Option("driver", "Read and ignored.", ignored="databases are reached without drivers of Java"),
    text("username", "Who reads and writes."),
    Option("password", "Their password, best as ${env:NAME}.", pattern=r"(?s).*", wanted="a text", secret=True),
    duration("connection.max-retry-timeout", "How long a connection may take.", "60 s"),
    text("scan.partition.column", "Column by whose ranges reading is split."),
    count("scan.partition.num", "Number of ranges.", "a number of ranges"),
    text("scan.partition.lower-bound", "Where the first range begins.", pattern=r"-?\d{1,18}", wanted="a whole number"),
    text("scan.partition.upper-bound", "Where the last range ends.", pattern=r"-?\d{1,18}", wanted="a whole number"),
    count("scan.fetch-size", "Rows that are fetched at once.", "a number of rows", least=0, default="0"),
    Option("scan.auto-commit", "Read and ignored.", ignored="a table is read in one transaction per range"),
    choice("lookup.cache", "What of the table is kept for lookups.", "NONE", "PARTIAL", "FULL", default="NONE"),
    count("lookup.partial-cache.max-rows", "Keys that are kept.", "a number of rows"),
    duration("lookup.partial-cache.expire-after-write", "How long a key is kept."),
    duration("lookup.partial-cache.expire-after-access", "How long a key is kept after its last use."),
    flag("lookup.partial-cache.cache-missing-key", "Whether a key without rows is kept.", "true"),
    choice("lookup.full-cache.reload-strategy", "When the whole table is read again.", "PERIODIC", "TIMED", default="PERIODIC"),
    duration("lookup.full-cache.periodic-reload.interval", "How often."),
    text("lookup.full-cache.timed-reload.iso-time", "At which time of the day.", pattern=r"\d{2}:\d{2}(:\d{2})?Z?", wanted="a time such as 10:15"),
    *LOOKUP_OPTIONS,
    *CHANGES_OPTIONS,
    count("lookup.max-retries", "How often a failed lookup is tried again.", "a number of times", least=0, default="3"),
    count("sink.buffer-flush.max-rows", "Rows that are written at once; default: 100, of PostgreSQL 5000.", "a number of rows", least=0),
    Option("sink.buffer-flush.interval", "Read and ignored.", ignored="rows are written at the end of each micro-batch"),
    count("sink.max-retries", "How often a failed write is tried again.", "a number of times", least=0, default="3"),
    count("sink.parallelism", "Transactions that write a micro-batch at one time, with a connection each; SQLite has one.", "a number of connections", default="1"),
    choice("sink.exactly-once", "Whether a table of Millstream's in the database keeps a repeated micro-batch from being written again: where it can, never, or always, else the job does not start.", "auto", "never", "always", default="auto"),
    text("sink.exactly-once.table", "Name of that table; it is made if it is not there.", default="millstream_batches"),
    *DEAD_LETTER_OPTIONS,
)  # fmt: skip

JDBC = Connector(
    "jdbc",
    _OPTIONS,
    reads=True,
    writes=True,
    looks_up=True,
    bounded=True,
    upserts=True,
    source="millstream.streams.connectors.jdbc.source:DatabaseSource",
    job_sink="millstream.streams.connectors.jdbc.sink:database_sink",
    lookup="millstream.streams.connectors.jdbc.lookup:DatabaseLookup",
)
