"""Where a job without a checkpoint begins to read a topic, as `scan.startup.mode` says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.errors import JobError
from millstream.streams.spark.source.cut import QueueSpan
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_log import TopicLog

__all__ = ["Beginning", "first_position"]

_OFFSET = re.compile(r"(?:broker:(?P<broker>[^,;:]+),)?(?:queue|partition):(?P<queue>\d+),offset:(?P<offset>\d+)")


_SHOWN_QUEUES = 3


@dataclass(frozen=True, slots=True)
class Beginning:
    """A position, and what the user has not asked for in so many words, in one sentence, blank for nothing."""

    position: Position
    notice: str = ""


def first_position(log: TopicLog, source: SourceSettings, name: str) -> Beginning:
    """Where to begin; offsets that the topic does not have become its nearest ones.

    Raises JobError GROUP_WITHOUT_OFFSETS where the table says so.
    """
    notice = ""
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
            notice = _without_offsets(source, committed)
            queues = {
                queue: span.max_offset
                if committed[queue] is None and source.group_reset == "latest"
                else _within(span, committed[queue])
                for queue, span in spans.items()
            }
        case _:
            queues = {queue: span.min_offset for queue, span in spans.items()}
    return Beginning(Position(queues, name=name), notice)


def _without_offsets(source: SourceSettings, committed: Mapping[str, int | None]) -> str:
    """What is to be said of queues in which the group has no offset; blank where it has one in each."""
    missing = sorted(queue for queue, offset in committed.items() if offset is None)
    if not missing:
        return ""
    said = f"The group {source.group} has no offsets in "
    if len(missing) < len(committed):
        more = f" and {len(missing) - _SHOWN_QUEUES} more" if len(missing) > _SHOWN_QUEUES else ""
        said += f"{len(missing)} of {len(committed)} queues ({', '.join(missing[:_SHOWN_QUEUES])}{more}) of "
    said += f"the topic {source.topic}"
    if source.group_reset == "none":
        raise JobError("GROUP_WITHOUT_OFFSETS", f"{said}.")
    return f"{said}: the job begins at the {source.group_reset} ones ('scan.startup.group-offsets.reset')."


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
