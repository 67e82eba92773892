"""What admin tools ask: sums, positions of all kinds, index entries, lists of topics and groups, keys, permissions."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, send
from interop.reference.steps import Step, ask, ask_nameserver

__all__ = ["KEYS", "TOOLS"]

_GROUP: Final = "tools-readers"
_OTHER: Final = "tools-others"


def _of_group(name: str, code: int, **fields: Any) -> Step:
    return ask(name, code, **{"topic": "tools-a", "group": _GROUP, "SHOWS": "json", **fields})


TOOLS: Final[list[Step]] = [
    *create_topic("tools-a", 2),
    create_group(_GROUP),
    create_group(_OTHER),
    _of_group("spans of an empty topic", 303),
    send("one", "tools-a", "1"),
    send("two", "tools-a", "2"),
    send("three", "tools-a", "3"),
    ask("commit", 15, consumerGroup=_GROUP, topic="tools-a", queueId=0, commitOffset=2),
    ask("commit of the others", 15, consumerGroup=_OTHER, topic="tools-a", queueId=0, commitOffset=1),
    _of_group("spans", 303),
    _of_group("spans of an unknown topic", 303, topic="tools-none"),
    _of_group("who wants what", 345),
    _of_group("who wants what of an unknown topic", 345, topic="tools-none"),
    ask("corrections", 308, topic="tools-a", compareGroup=_GROUP, SHOWS="json"),
    ask("corrections without some", 308, topic="tools-a", compareGroup="tools-x", filterGroups="tools-x", SHOWS="json"),
    ask("clone", 314, srcGroup=_GROUP, destGroup="tools-twins", topic="tools-a", offline="true"),
    ask("cloned", 14, consumerGroup="tools-twins", topic="tools-a", queueId=0),
    ask("clone without a group", 314, srcGroup=_GROUP),
    ask("index", 321, topic="tools-a", queueId=0, index=0, count=10, consumerGroup=_GROUP, SHOWS="json"),
    ask("index from the middle", 321, topic="tools-a", queueId=0, index=1, count=1, SHOWS="json"),
    ask("index beyond the end", 321, topic="tools-a", queueId=0, index=9, count=1, SHOWS="json"),
    ask("index of an unknown topic", 321, topic="tools-none", queueId=0, index=0, count=1),
    ask("sums by an unknown name", 315, statsName="NO_SUCH_NUMS", statsKey="tools-a"),
    ask("progress of a list", 208, consumerGroup=_GROUP, topicList="tools-a;tools-none", SHOWS="json"),
    ask("unknown setting", 25, "noSuchSetting=1\n"),
    ask("a setting", 25, "fileReservedTime=48\n"),
    ask("clean queues", 306),
    ask("clean topics", 316),
    ask("clean the log", 329),
    ask("list of topics", 18, {"topicConfigList": [{"topicName": "tools-b", "readQueueNums": 1, "writeQueueNums": 1}]}),
    ask("settings of a listed topic", 351, topic="tools-b", SHOWS="json"),
    ask("list of nothing", 18, {"topicConfigList": []}),
    ask("list of groups", 225, {"groupConfigList": [{"groupName": "tools-c", "retryMaxTimes": 3}]}),
    ask("list of no groups", 225, {"groupConfigList": []}),
    ask("delete and keep the positions", 207, groupName=_OTHER, cleanOffset="false"),
    ask("kept position", 14, consumerGroup=_OTHER, topic="tools-a", queueId=0),
]

KEYS: Final[list[Step]] = [
    *create_topic("keys-a", 2),
    ask_nameserver("key that is not there", 101, namespace="keys", key="a"),
    ask_nameserver("put", 100, namespace="keys", key="a", value="1"),
    ask_nameserver("get", 101, namespace="keys", key="a"),
    ask_nameserver("list", 219, namespace="keys", SHOWS="json"),
    ask_nameserver("delete", 102, namespace="keys", key="a"),
    ask_nameserver("delete again", 102, namespace="keys", key="a"),
    ask_nameserver("list of nothing", 219, namespace="no-keys"),
    ask_nameserver("put without a value", 100, namespace="keys", key="a"),
    ask_nameserver("route", 105, topic="keys-a", SHOWS="json", UNTIL=0),
    ask_nameserver("wipe", 205, brokerName="broker-a"),
    ask_nameserver("wipe of an unknown broker", 205, brokerName="nobody"),
    ask_nameserver("route of wiped", 105, topic="keys-a", SHOWS="json"),
    ask_nameserver("add", 327, brokerName="broker-a"),
    ask_nameserver("route of added", 105, topic="keys-a", SHOWS="json"),
    ask_nameserver("members", 901, clusterName="DefaultCluster", brokerName="broker-a", SHOWS="json"),
    ask_nameserver("members of an unknown broker", 901, clusterName="DefaultCluster", brokerName="x", SHOWS="json"),
    ask_nameserver("topics of an unknown cluster", 224, cluster="nowhere", SHOWS="json"),
    ask_nameserver("topics of the system", 304, SHOWS="json"),
    ask_nameserver("unknown setting", 318, "noSuchSetting=1\n"),
]
