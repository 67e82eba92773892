"""Pulls: bounds of offsets, filters, limits, refusals, waiting."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_topic, heartbeat, pull, send, tags
from interop.reference.steps import Step, ask

__all__ = ["PULLING"]

_NO_SUBSCRIPTION: Final[dict[str, Any]] = {"sysFlag": 0, "subscription": ""}

PULLING: Final[list[Step]] = [
    *create_topic("pulling-a"),
    *create_topic("pulling-empty"),
    *create_topic("pulling-closed", perm=2),
    pull("empty queue", "pulling-empty"),
    pull("empty queue beyond its end", "pulling-empty", 5),
    pull("empty queue with waiting", "pulling-empty", sysFlag=6, suspendTimeoutMillis=200),
    send("red", "pulling-a", "r", {"TAGS": "red", "price": "5"}),
    send("blue", "pulling-a", "b", {"TAGS": "blue", "price": "15"}),
    send("plain", "pulling-a", "p"),
    # The reference makes messages readable a moment after it has answered.
    ask("readable", 30, topic="pulling-a", queueId=0, UNTIL=0),
    pull("all", "pulling-a"),
    pull("as a lite pull", "pulling-a", CODE=361, sysFlag=20),
    pull("one", "pulling-a", maxMsgNums=1),
    pull("none wanted", "pulling-a", maxMsgNums=0),
    pull("from the middle", "pulling-a", 1),
    pull("at the end", "pulling-a", 3),
    pull("at the end with waiting", "pulling-a", 3, sysFlag=6, suspendTimeoutMillis=200),
    pull("beyond the end", "pulling-a", 4),
    pull("far beyond the end", "pulling-a", 4_000_000_000),
    pull("before the beginning", "pulling-a", -1),
    pull("by tag", "pulling-a", subscription="blue"),
    pull("by two tags", "pulling-a", subscription=" red ||blue"),
    pull("by a tag that nobody has", "pulling-a", subscription="green"),
    pull("by a tag that nobody has, waiting", "pulling-a", subscription="green", sysFlag=6, suspendTimeoutMillis=200),
    pull("by a condition", "pulling-a", expressionType="SQL92", subscription="price > 10"),
    pull("by a condition of nonsense", "pulling-a", expressionType="SQL92", subscription="price >"),
    pull("by an unknown kind of filter", "pulling-a", expressionType="XPATH", subscription="//a"),
    pull("few bytes", "pulling-a", maxMsgBytes=10),
    pull("queue out of bounds", "pulling-a", queueId=1),
    pull("queue below 0", "pulling-a", queueId=-1),
    pull("unknown topic", "pulling-none"),
    pull("topic that nobody may read", "pulling-closed"),
    pull("no subscription of a known group", "pulling-a", **_NO_SUBSCRIPTION),
    pull("no subscription of an unknown group", "pulling-a", 0, "pulling-strangers", **_NO_SUBSCRIPTION),
    heartbeat("subscribe", "pulling-members", [tags("pulling-a", "red", 7)]),
    pull("by heartbeat", "pulling-a", 0, "pulling-members", subVersion=7, **_NO_SUBSCRIPTION),
    pull("newer than the heartbeat", "pulling-a", 0, "pulling-members", subVersion=8, **_NO_SUBSCRIPTION),
    pull("another topic than subscribed", "pulling-empty", 0, "pulling-members", **_NO_SUBSCRIPTION),
    pull("commits on the way", "pulling-a", 2, "pulling-members", sysFlag=5, commitOffset=2),
    ask("committed", 14, consumerGroup="pulling-members", topic="pulling-a", queueId=0),
    ask(
        "no topic",
        11,
        consumerGroup="readers",
        queueId=0,
        queueOffset=0,
        maxMsgNums=1,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
    ),
    ask(
        "no number",
        11,
        consumerGroup="readers",
        topic="pulling-a",
        queueId="x",
        queueOffset=0,
        maxMsgNums=1,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
    ),
]
