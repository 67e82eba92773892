"""Bodies of requests that inspect queues, offsets and totals (codes 303, 308, 315, 317, 321 and 345)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from millstream.protocol.remoting.bodies import CamelBody, SubscriptionData
from millstream.protocol.remoting.messages.offsets import QueueName

__all__ = [
    "CorrectionOffsets",
    "GrowthSum",
    "GrowthSums",
    "IndexEntryData",
    "IndexEntryList",
    "SubscriptionAnswer",
    "TimeSpan",
    "TimeSpans",
    "encode_all_consume_statistics",
]


class TimeSpan(CamelBody):
    """When messages of one queue were stored (ms since 1970, -1: none), and for how long (ms) the next one waits."""

    message_queue: QueueName
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


class TimeSpans(CamelBody):
    """All queues of a topic."""

    consume_time_span_set: list[TimeSpan]


class CorrectionOffsets(CamelBody):
    """Offsets by queue."""

    correction_offsets: dict[int, int]


class IndexEntryData(CamelBody):
    """One entry of a queue's index; `eval` says whether a filter would let it pass, which is not looked at here."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False


class IndexEntryList(CamelBody):
    """Some entries, how far the queue reaches, and what the group that was named wants of its topic."""

    queue_data: list[IndexEntryData]
    max_queue_index: int
    min_queue_index: int
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class SubscriptionAnswer(CamelBody):
    """What a group wants of a topic; nothing where none of its consumers is there."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


def encode_all_consume_statistics(
    told: Iterable[tuple[str, bytes]], broker_address: str, behind: int, in_flight: int
) -> bytes:
    """The answer to code 317: for each group the bodies that answer code 208, of one topic each."""
    groups: dict[str, list[bytes]] = {}
    for group, statistics in told:
        groups.setdefault(group, []).append(statistics)
    encode = msgspec.json.encode
    rows = (b"{" + encode(group) + b":[" + b",".join(bodies) + b"]}" for group, bodies in groups.items())
    head = b'{"brokerAddr":%s,"totalDiff":%d,"totalInflightDiff":%d' % (encode(broker_address), behind, in_flight)
    return head + b',"consumeStatsList":[' + b",".join(rows) + b"]}"


class GrowthSum(CamelBody):
    """What was added in one span, per second, and (`avgpt`) by one message on average."""

    sum: int
    tps: float
    avgpt: float


class GrowthSums(CamelBody):
    """The sums of the last minute, hour and day."""

    stats_minute: GrowthSum
    stats_hour: GrowthSum
    stats_day: GrowthSum
