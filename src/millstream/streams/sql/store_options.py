"""Options of tables that are files or tables of a database."""

from __future__ import annotations

from millstream.streams.connectors.refused_rows import DEAD_LETTER_OPTIONS
from millstream.streams.plan.types import STRING, DataType, TypeKind
from millstream.streams.sql.options import Option, choice, count, duration, flag, size, text

__all__ = ["FILE_METADATA", "FILE_OPTIONS", "JDBC_OPTIONS", "LOOKUP_OPTIONS"]

FILE_METADATA: dict[str, DataType] = {
    "file.path": STRING,
    "file.name": STRING,
    "file.size": DataType(TypeKind.BIGINT),
    "file.modification-time": DataType(TypeKind.TIMESTAMP_LTZ, precision=3),
}
"""What a table of files knows of the file that a row comes from."""

_ONE_WRITER = "each micro-batch writes its own files, as many as it needs"

LOOKUP_OPTIONS: tuple[Option, ...] = (
    choice("lookup.store", "How rows for lookups are kept: in each worker, or once per machine as a dimension table; default: dimension where the whole table is kept, and for large files.", "dimension", "plain"),
    flag("lookup.verify", "Whether a dimension table keeps its keys and compares them, beyond their 128-bit hashes."),
    flag("lookup.full-scan", "Whether a condition without any index may compare each row with the whole table."),
)  # fmt: skip
"""Those of every table that can become a dimension table."""

_CHANGES_OPTIONS: tuple[Option, ...] = (
    text("lookup.changes.topic", "Topic with the changes of the table, which bring a dimension table up to date between its loads."),
    choice("lookup.changes.format", "What its messages are: rows as JSON, with the primary key as JSON in the message's key, where a message without a body deletes; or Debezium's envelopes.", "json", "debezium-json", default="json"),
    text("lookup.changes.nameserver", "Nameserver of that topic; default: that of the session."),
    duration("lookup.changes.interval", "How often a dimension table looks for new changes.", "10 s"),
    text("lookup.changes.access-key", "Who reads that topic; default: MILLSTREAM_ACCESS_KEY of the environment."),
    Option("lookup.changes.secret-key", "Their secret, best as ${env:NAME}.", pattern=r"(?s).*", wanted="a text", secret=True),
    text("lookup.changes.tls", "As 'tls' of the connector 'rocketmq'.", wanted="a path, or system"),
)  # fmt: skip
"""Those of files and tables of a database whose changes are in a topic."""

FILE_OPTIONS: tuple[Option, ...] = (
    text("path", "Directory of the files.", required=True, pattern=r".+", wanted="a path"),
    choice("format", "Format of the files.", "json", "csv", "parquet", default="json"),
    duration("source.monitor-interval", "How often to look for new files; default: the files that are there at the start."),
    text("source.path.regex-pattern", "Only files whose paths match the expression."),
    text("csv.field-delimiter", "What stands between fields.", default=",", format="csv"),
    flag("csv.ignore-parse-errors", "Only count malformed lines.", format="csv"),
    text("csv.null-literal", "What NULL is written as.", pattern="(?s).*", format="csv"),
    flag("json.ignore-parse-errors", "Only count malformed lines.", format="json"),
    choice("json.timestamp-format.standard", "How times are written.", "SQL", "ISO-8601", default="SQL", format="json"),
    text("partition.default-name", "Directory of rows whose partition column is NULL or blank.", default="__DEFAULT_PARTITION__"),
    choice("partition.time-extractor.kind", "How a partition's time is found.", "default", default="default"),
    text("partition.time-extractor.timestamp-pattern", "A partition's time from its columns, as in '$dt $hm:00'."),
    text("partition.time-extractor.timestamp-formatter", "How that time is written; default: 2026-01-02 03:04:05, or the day alone."),
    choice("sink.partition-commit.trigger", "Whose time says that a partition is whole: its first rows', or its own, which the watermark passes.", "process-time", "partition-time", default="process-time"),
    duration("sink.partition-commit.delay", "How long after its time a partition is whole.", "0 s"),
    text("sink.partition-commit.watermark-time-zone", "Zone of partitions' times.", default="UTC"),
    choice("sink.partition-commit.policy.kind", "What tells readers that a partition is whole; default: nothing.", "success-file"),
    text("sink.partition-commit.success-file.name", "Name of the file that says so.", default="_SUCCESS"),
    size("sink.rolling-policy.file-size", "Size at which a file gets a successor.", "128 MB"),
    duration("lookup.cache.ttl", "How often a lookup looks for changed files.", "10 s"),
    *LOOKUP_OPTIONS,
    *_CHANGES_OPTIONS,
    *(
        Option(name, "Read and ignored.", ignored=_ONE_WRITER)
        for name in (
            "sink.rolling-policy.rollover-interval",
            "sink.rolling-policy.check-interval", "sink.rolling-policy.inactivity-interval",
            "sink.shuffle-by-partition.enable", "auto-compaction", "compaction.file-size",
        )
    ),
)  # fmt: skip
"""Those of the connector 'filesystem'."""

JDBC_OPTIONS: tuple[Option, ...] = (
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
    *_CHANGES_OPTIONS,
    count("lookup.max-retries", "How often a failed lookup is tried again.", "a number of times", least=0, default="3"),
    count("sink.buffer-flush.max-rows", "Rows that are written at once; default: 100, of PostgreSQL 5000.", "a number of rows", least=0),
    Option("sink.buffer-flush.interval", "Read and ignored.", ignored="rows are written at the end of each micro-batch"),
    count("sink.max-retries", "How often a failed write is tried again.", "a number of times", least=0, default="3"),
    count("sink.parallelism", "Transactions that write a micro-batch at one time, with a connection each; SQLite has one.", "a number of connections", default="1"),
    choice("sink.exactly-once", "Whether a table of Millstream's in the database keeps a repeated micro-batch from being written again: where it can, never, or always, else the job does not start.", "auto", "never", "always", default="auto"),
    text("sink.exactly-once.table", "Name of that table; it is made if it is not there.", default="millstream_batches"),
    *DEAD_LETTER_OPTIONS,
)  # fmt: skip
"""Those of the connector 'jdbc'."""
