"""Sends: both sets of names, queues, bounds, refusals, batches."""

from __future__ import annotations

from typing import Final

from interop.reference.scripts.requests import BORN_MS, create_topic, pull, send
from interop.reference.steps import Step, ask
from millstream.protocol.remoting.messages.batch import encode_batch_item

__all__ = ["BATCHES", "SENDING"]

_LONG: Final = {
    "producerGroup": "producers", "topic": "sending-a", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 1, "sysFlag": 0, "bornTimestamp": BORN_MS, "flag": 7, "properties": "TAGS\x01blue\x02own\x01value\x02",
    "reconsumeTimes": 0, "unitMode": "false", "batch": "false",
}  # fmt: skip
_LARGEST_BODY: Final = 4 * 1024 * 1024

SENDING: Final[list[Step]] = [
    *create_topic("sending-a", 2),
    *create_topic("sending-one"),
    send("first", "sending-a"),
    send(
        "second",
        "sending-a",
        "two",
        {"TAGS": "red", "KEYS": "k1 k2", "UNIQ_KEY": "ID1", "own": "größe"},
    ),
    ask("long names", 10, "three", **_LONG),
    send("broker picks the queue", "sending-one", e=-1),
    send("compressed by the client", "sending-one", b"x\x9cK\x04\x00\x00b\x00b", f=1),
    send("with a count of consumptions", "sending-one", j=3),
    send("empty body", "sending-one", ""),
    send("largest body", "sending-one", f"${{x*{_LARGEST_BODY}}}"),
    send("body too large", "sending-one", f"${{x*{_LARGEST_BODY + 1}}}"),
    send("most properties", "sending-one", "p", {"own": "${v*32700}"}),
    send("too many properties", "sending-one", "p", {"own": "${v*32800}"}),
    send("unknown topic", "sending-none"),
    send("no topic", ""),
    send("long topic", "x" * 128),
    send("illegal topic", "a b"),
    send("topic of the system", "SCHEDULE_TOPIC_XXXX"),
    send("template of topics", "TBW102"),
    send("queue out of bounds", "sending-a", e=2),
    send("queue far out of bounds", "sending-a", e=2_000_000_000),
    send("queue below -1", "sending-one", e=-2),
    send("queue is no number", "sending-one", e="first"),
    send("no queue", "sending-one", e=""),
    send("no group", "sending-one", a=""),
    send("properties without an end", "sending-one", "p", i="TAGS\x01blue"),
    send("properties of nonsense", "sending-one", "p", i="TAGS blue"),
    send("oneway", "sending-one", "quiet", ONEWAY=True),
    send("after oneway", "sending-one", "loud"),
    pull("pull all", "sending-one"),
    pull("pull first queue", "sending-a"),
    pull("pull second queue", "sending-a", queueId=1),
]

_BATCH: Final = b"".join(
    encode_batch_item(body, properties, flag=flag)
    for body, properties, flag in (
        (b"one", {"TAGS": "red"}, 0), (b"two", {"KEYS": "k", "UNIQ_KEY": "ID2"}, 5), (b"three", {}, 0)
    )
)  # fmt: skip

BATCHES: Final[list[Step]] = [
    *create_topic("batches-a"),
    send("before", "batches-a", "zero"),
    send("batch", "batches-a", _BATCH, CODE=320, m="true"),
    send("after", "batches-a", "four"),
    send("batch by 310", "batches-a", _BATCH, m="true"),
    send("empty batch", "batches-a", "", CODE=320, m="true"),
    send("cut batch", "batches-a", _BATCH[:-3], CODE=320, m="true"),
    send("batch of nonsense", "batches-a", "nonsense" * 10, CODE=320, m="true"),
    send("batch to an unknown topic", "batches-none", _BATCH, CODE=320, m="true"),
    send("batch to a retry topic", "%RETRY%batches", _BATCH, CODE=320, m="true"),
    send("batch to a bad queue", "batches-a", _BATCH, CODE=320, m="true", e=9),
    pull("pull all", "batches-a"),
]
