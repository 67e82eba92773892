"""Requests as clients make them, with their usual fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interop.reference.steps import Step, ask, ask_nameserver
from millstream.model.filter import java_hash_code

__all__ = ["create_group", "create_topic", "heartbeat", "pop", "pull", "send", "sql", "tags"]

BORN_MS = 1_700_000_000_000
MAX_MESSAGES = 32


def create_topic(topic: str, queues: int = 1, **fields: Any) -> list[Step]:
    """Make a topic and wait until the nameserver knows it."""
    settings = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return [
        ask(f"create {topic}", 17, **{**settings, **fields}),
        ask_nameserver(f"route of {topic}", 105, topic=topic, UNTIL=0, SHOWS="json"),
    ]


def create_group(group: str, **settings: Any) -> Step:
    """Make a group, or change it."""
    usual = {
        "groupName": group, "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True, "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
    }  # fmt: skip
    return ask(f"create {group}", 200, {**usual, **settings})


def send(
    name: str, topic: str, body: str | bytes = "hello", properties: Mapping[str, str] | None = None, **fields: Any
) -> Step:
    """Code 310 to queue 0, unless `fields` say otherwise."""
    text = "".join(f"{key}\x01{value}\x02" for key, value in (properties or {}).items())
    usual = {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": BORN_MS, "h": 0, "i": text, "j": 0,
        "k": "false", "m": "false",
    }  # fmt: skip
    code = fields.pop("CODE", 310)
    return ask(name, code, body, **{**usual, **fields})


def pull(name: str, topic: str, offset: Any = 0, group: str = "readers", **fields: Any) -> Step:
    """Code 11 from queue 0 with a subscription to everything, no waiting."""
    usual = {
        "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": MAX_MESSAGES,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    return ask(name, fields.pop("CODE", 11), **{"SHOWS": "records", **usual, **fields})


def pop(name: str, topic: str, group: str, **fields: Any) -> Step:
    """Code 200050 from all queues, no waiting."""
    usual = {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": MAX_MESSAGES, "invisibleTime": 60_000,
        "pollTime": 0, "bornTime": "${now}", "initMode": 0, "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    return ask(name, 200050, **{"SHOWS": "records", **usual, **fields})


def tags(topic: str, expression: str = "*", version: int = 1) -> dict[str, Any]:
    """A subscription by tag."""
    wanted = [] if expression == "*" else [tag.strip() for tag in expression.split("||")]
    return {
        "topic": topic, "subString": expression, "subVersion": version, "expressionType": "TAG", "tagsSet": wanted,
        "codeSet": [java_hash_code(tag) for tag in wanted], "classFilterMode": False,
    }  # fmt: skip


def sql(topic: str, expression: str, version: int = 1) -> dict[str, Any]:
    """A subscription by a condition."""
    return {**tags(topic, expression, version), "expressionType": "SQL92", "tagsSet": []}


def heartbeat(name: str, group: str, subscriptions: list[dict[str, Any]], *, client: str = "one", **said: Any) -> Step:
    """A heartbeat of one push consumer."""
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions, "unitMode": False,
    }  # fmt: skip
    body = {
        "clientID": f"{client}@1#2", "producerDataSet": [{"groupName": "producers"}],
        "consumerDataSet": [{**consumer, **said}], "heartbeatFingerprint": 0, "withoutSub": False,
    }  # fmt: skip
    return ask(name, 34, body, CLIENT=client)
