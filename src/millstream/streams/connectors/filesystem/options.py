"""The connector `filesystem`: a directory of files, as source, sink and lookup table."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import (
    CHANGES_OPTIONS,
    LOOKUP_OPTIONS,
    Option,
    choice,
    duration,
    flag,
    size,
    text,
)
from millstream.streams.plan.types import STRING, DataType, TypeKind

__all__ = ["FILESYSTEM"]

_METADATA: dict[str, DataType] = {
    "file.path": STRING,
    "file.name": STRING,
    "file.size": DataType(TypeKind.BIGINT),
    "file.modification-time": DataType(TypeKind.TIMESTAMP_LTZ, precision=3),
}
"""What a table of files knows of the file that a row comes from."""

_ONE_WRITER = "each micro-batch writes its own files, as many as it needs"

_OPTIONS: tuple[Option, ...] = (
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
    *CHANGES_OPTIONS,
    *(
        Option(name, "Read and ignored.", ignored=_ONE_WRITER)
        for name in (
            "sink.rolling-policy.rollover-interval",
            "sink.rolling-policy.check-interval", "sink.rolling-policy.inactivity-interval",
            "sink.shuffle-by-partition.enable", "auto-compaction", "compaction.file-size",
        )
    ),
)  # fmt: skip


def _ends(options: Mapping[str, str]) -> bool:
    return "source.monitor-interval" not in options


FILESYSTEM = Connector(
    "filesystem",
    _OPTIONS,
    _METADATA,
    reads=True,
    writes=True,
    looks_up=True,
    overwrites=True,
    source="millstream.streams.connectors.filesystem.source:FileSource",
    job_sink="millstream.streams.connectors.filesystem.sink:file_sink",
    lookup="millstream.streams.connectors.filesystem.lookup:FileLookup",
    ends=_ends,
    formats=("json", "csv", "parquet"),
    merges=True,
    commits_partitions=True,
)
