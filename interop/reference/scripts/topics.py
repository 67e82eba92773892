"""Topics and groups: made, listed, changed, refused, deleted."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, pull, send
from interop.reference.steps import Step, ask, ask_nameserver

__all__ = ["GROUPS", "TOPICS"]

_NEW: Final[dict[str, Any]] = {
    "defaultTopic": "TBW102",
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
}

TOPICS: Final[list[Step]] = [
    *create_topic("topics-a", 2),
    ask("same again", 17, topic="topics-a", **{**_NEW, "readQueueNums": 2, "writeQueueNums": 2}),
    ask("more queues", 17, topic="topics-a", **{**_NEW, "readQueueNums": 3, "writeQueueNums": 3}),
    ask("read only", 17, topic="topics-a", **{**_NEW, "readQueueNums": 3, "writeQueueNums": 3, "perm": 4}),
    send("send to read only", "topics-a"),
    ask("blank name", 17, topic=" ", **_NEW),
    ask("no name", 17, **_NEW),
    ask("illegal name", 17, topic="a b", **_NEW),
    ask("long name", 17, topic="x" * 128, **_NEW),
    ask("name of the system", 17, topic="SCHEDULE_TOPIC_XXXX", **_NEW),
    ask("name of the template", 17, topic="TBW102", **_NEW),
    ask("unknown attribute", 17, topic="topics-b", attributes="+no.such=1", **_NEW),
    ask("bad attribute", 17, topic="topics-b", attributes="+message.type=SOMETHING", **_NEW),
    ask("attribute", 17, topic="topics-fifo", attributes="+message.type=FIFO", **_NEW),
    ask("numbers missing", 17, topic="topics-c"),
    ask("no number", 17, topic="topics-c", **{**_NEW, "readQueueNums": "many"}),
    ask_nameserver("unknown route", 105, topic="topics-none"),
    ask_nameserver("route without a name", 105),
    ask_nameserver("cluster", 106, SHOWS="json"),
    ask("delete", 215, topic="topics-a"),
    ask_nameserver("delete there too", 216, topic="topics-a"),
    ask_nameserver("route of deleted", 105, topic="topics-a", UNTIL=17),
    send("send to deleted", "topics-a"),
    pull("pull from deleted", "topics-a"),
    ask("delete unknown", 215, topic="topics-none"),
    ask("delete of the system", 215, topic="SCHEDULE_TOPIC_XXXX"),
    ask("delete without a name", 215),
    ask("unknown code", 7777),
    ask_nameserver("unknown code there", 7777),
    ask("settings of a topic", 351, topic="topics-fifo", SHOWS="json"),
    ask("settings of an unknown topic", 351, topic="topics-none"),
]

GROUPS: Final[list[Step]] = [
    create_group("groups-a"),
    create_group("groups-a", retryMaxTimes=3),
    ask("settings", 352, group="groups-a", SHOWS="json"),
    ask("settings of unknown", 352, group="groups-none"),
    create_group("groups a"),
    create_group(""),
    create_group("g" * 256),
    ask("no body", 200),
    ask("no JSON", 200, "what"),
    ask("progress of nobody", 208, consumerGroup="groups-a", SHOWS="json"),
    ask("progress of unknown", 208, consumerGroup="groups-none", SHOWS="json"),
    ask("connections of nobody", 203, consumerGroup="groups-a"),
    ask("connections of unknown", 203, consumerGroup="groups-none"),
    ask("members of nobody", 38, consumerGroup="groups-a"),
    ask("members without a group", 38),
    ask("delete", 207, groupName="groups-a", cleanOffset="true"),
    ask("delete again", 207, groupName="groups-a", cleanOffset="true"),
    ask("settings of deleted", 352, group="groups-a"),
]
