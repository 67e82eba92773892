"""The sink of an INSERT into a table of files."""

from __future__ import annotations

import re

from millstream.streams.connectors.filesystem.file_sink import FileSink
from millstream.streams.connectors.filesystem.part_files import FileLayout
from millstream.streams.connectors.filesystem.partition_times import CommitPolicy, PartitionClock, time_reader
from millstream.streams.connectors.options import bytes_of, milliseconds
from millstream.streams.connectors.sink_request import SinkRequest
from millstream.streams.errors import JobError
from millstream.streams.functions.calendar import zone_of
from millstream.streams.plan.expressions import Literal
from millstream.streams.plan.nodes import Project
from millstream.streams.plan.nodes import Sink as Insert
from millstream.streams.plan.tables import DEFAULT_NAME, Table, local_directory, partition_name

__all__ = ["commit_policy", "file_sink"]


def file_sink(request: SinkRequest) -> FileSink:
    """The sink of the INSERT. Raises JobError SINK_FAILED for options that cannot be."""
    insert = request.insert
    table, options = insert.table, insert.table.options
    layout = FileLayout(
        local_directory(options["path"]),
        insert.input.schema,
        options.get("format", "json").lower(),
        table.partition_keys,
        options.get("partition.default-name", DEFAULT_NAME),
        size_bytes(options.get("sink.rolling-policy.file-size", "128 MB")),
        options,
    )
    return FileSink(
        table.name,
        layout,
        number=request.number,
        overwrites=insert.overwrites,
        emptied=_fixed_partition(insert, layout.default_name),
        policy=commit_policy(table),
    )


def commit_policy(table: Table) -> CommitPolicy | None:
    """When partitions are whole; None where nobody is told. Raises JobError SINK_FAILED."""
    options = table.options
    if "sink.partition-commit.policy.kind" not in options or not table.partition_keys:
        return None
    mark = options.get("sink.partition-commit.success-file.name", "_SUCCESS")
    delay_ms = milliseconds(options.get("sink.partition-commit.delay", "0 s"))
    if options.get("sink.partition-commit.trigger", "process-time").lower() != "partition-time":
        return CommitPolicy(mark, delay_ms)
    formatter = options.get("partition.time-extractor.timestamp-formatter", "")
    try:
        reader = time_reader(formatter)
    except ValueError as error:
        words = f"Times of partitions of {table.name} cannot be read as {formatter!r}: {error}."
        raise JobError("SINK_FAILED", words, remedy="Use each of yyyy MM dd HH mm ss SSS at most once.") from None
    name = options.get("sink.partition-commit.watermark-time-zone", "UTC")
    zone = zone_of(name)
    if zone is None:
        raise JobError("SINK_FAILED", f"{name!r} is no time zone.", remedy="Use one such as 'Europe/Berlin'.")
    pattern = options.get("partition.time-extractor.timestamp-pattern", "")
    _check_pattern(table, pattern)
    default_name = options.get("partition.default-name", DEFAULT_NAME)
    return CommitPolicy(mark, delay_ms, PartitionClock(table.partition_keys, pattern, reader, zone, default_name))


def _check_pattern(table: Table, pattern: str) -> None:
    names = sorted(table.partition_keys, key=len, reverse=True)
    for word in re.findall(r"\$\w*", pattern):
        if not word[1:].startswith(tuple(names)):
            words = f"The time of a partition of {table.name} is read from {word}, by which it is not partitioned."
            raise JobError("SINK_FAILED", words, remedy=f"Columns are {', '.join(f'${name}' for name in names)}.")


def _fixed_partition(insert: Insert, default_name: str) -> str | None:
    """The directory of an INSERT whose PARTITION clause gives plain values of all partition columns."""
    keys = insert.table.partition_keys
    if not keys or not set(keys) <= set(insert.fixed) or not isinstance(insert.input, Project):
        return None
    values = dict(insert.input.columns)
    names = []
    for key in keys:
        value = values[key]
        if not isinstance(value, Literal) or not isinstance(value.value, str | int) or isinstance(value.value, bool):
            return None
        names.append(partition_name(key, str(value.value), default_name))
    return "/".join(names)


def size_bytes(text: str) -> int:
    """Bytes of a text such as '128 MB'. Raises JobError SINK_FAILED."""
    try:
        return bytes_of(text)
    except ValueError:
        raise JobError("SINK_FAILED", f"{text!r} is no size.", remedy="Write it as in '128 MB'.") from None
