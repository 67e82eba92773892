"""The options of a topic table, as its source needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.reading import ReadDefaults
from millstream.streams.spark.source.topic_log import Access

__all__ = ["SourceSettings"]


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How a topic is read."""

    nameserver: str
    topic: str
    tag: str
    startup: str
    """Where a job without a checkpoint begins, as `scan.startup.mode` says it."""
    startup_timestamp_ms: int
    max_rows: int
    """Of a micro-batch, about."""
    group: str
    """The consumer group whose offsets show how far the job is; blank for none."""
    dead_letter_topic: str | None
    """Where malformed messages go; None: they are only counted."""
    startup_offsets: str = ""
    group_reset: str = "earliest"
    """Where a queue begins in which the group has no offset: earliest, latest or none."""
    access: Access = field(default_factory=Access)
    read_from: str = "master"
    """Who is asked first for messages: master or replica."""
    cold: str = "direct"
    """How cold messages are read: from the object store itself (direct), or through the broker."""

    @classmethod
    def of(cls, table: Table, job: ReadDefaults) -> SourceSettings:
        """The values of the WITH clause, else the job's."""
        options = table.options
        topic = options["topic"]
        ignored = options.get(f"{options.get('format', 'json').lower()}.ignore-parse-errors", "false").lower() == "true"
        return cls(
            nameserver=options.get("nameserver", job.nameserver),
            topic=topic,
            tag=options.get("tag", "*"),
            startup=options.get("scan.startup.mode", "earliest-offset"),
            startup_timestamp_ms=int(options.get("scan.startup.timestamp-millis", "0")),
            max_rows=int(options.get("scan.max-rows-per-trigger", job.max_rows)),
            group=options.get("consumer.group", ""),
            access=Access.of(options),
            read_from=options.get("scan.read-from", "master").lower(),
            cold=options.get("scan.cold", "direct").lower(),
            group_reset=options.get("scan.startup.group-offsets.reset", "earliest").lower(),
            startup_offsets=options.get("scan.startup.specific-offsets", ""),
            dead_letter_topic=None if ignored else options.get("dead-letter.topic", f"{topic}_dead_letter"),
        )
