"""Where a job without a checkpoint begins to read a topic, as `scan.startup.mode` says."""

from __future__ import annotations

import re

from millstream.streams.jobs.settings import SourceSettings
from millstream.streams.spark.source.cut import QueueSpan
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_log import TopicLog

__all__ = ["first_position"]

_OFFSET = re.compile(r"(?:broker:(?P<broker>[^,;:]+),)?(?:queue|partition):(?P<queue>\d+),offset:(?P<offset>\d+)")


def first_position(log: TopicLog, source: SourceSettings, name: str) -> Position:
    """The position; offsets that the topic does not have become its nearest ones."""
    spans = log.spans(source.topic)
    match source.startup.lower():
        case "latest-offset":
            queues = {queue: span.max_offset for queue, span in spans.items()}
        case "timestamp":
            queues = {queue: log.offset_at(source.topic, queue, source.startup_timestamp_ms) for queue in spans}
        case "specific-offsets":
            queues = _named_offsets(source.startup_offsets, spans)
        case "group-offsets":
            committed = {queue: log.committed(source.group, source.topic, queue) for queue in spans}
            queues = {queue: _within(spans[queue], offset) for queue, offset in committed.items()}
        case _:
            queues = {queue: span.min_offset for queue, span in spans.items()}
    return Position(queues, name=name)


def _named_offsets(text: str, spans: dict[str, QueueSpan]) -> dict[str, int]:
    """Where each queue begins; one that is not named at its start. Without a broker, that number of every broker."""
    found = list(_OFFSET.finditer(text))
    queues = {}
    for queue, span in spans.items():
        broker, _, number = queue.rpartition("/")
        named = [one for one in found if one["queue"] == number and one["broker"] in (None, broker)]
        queues[queue] = _within(span, int(named[-1]["offset"]) if named else None)
    return queues


def _within(span: QueueSpan, offset: int | None) -> int:
    return span.min_offset if offset is None else min(max(offset, span.min_offset), span.max_offset)
