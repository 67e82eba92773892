"""Consumers that come and go, and the locks of ordered ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from interop.reference.scripts.requests import create_topic, heartbeat, sql, tags
from interop.reference.steps import Step, ask, told

__all__ = ["CONSUMERS", "LOCKS"]

_GROUP: Final = "consumers-group"


def _check(name: str, subscription: dict[str, Any]) -> Step:
    body = {"clientId": "one@1#2", "group": _GROUP, "namespace": "", "subscriptionData": subscription}
    return ask(name, 46, body)


CONSUMERS: Final[list[Step]] = [
    *create_topic("consumers-a"),
    heartbeat("one comes", _GROUP, [tags("consumers-a", version=1)]),
    ask("members", 38, consumerGroup=_GROUP, SHOWS="json"),
    ask("its retry topic", 202, topic=f"%RETRY%{_GROUP}", SHOWS="json"),
    heartbeat("two comes", _GROUP, [tags("consumers-a", version=1)], client="two"),
    told("one is told of itself", 40),
    told("one is told of two", 40),
    told("two is told of itself", 40, client="two"),
    ask("both are members", 38, consumerGroup=_GROUP, SHOWS="json"),
    ask("connections", 203, consumerGroup=_GROUP, SHOWS="json"),
    heartbeat("one again", _GROUP, [tags("consumers-a", version=2)]),
    heartbeat("one subscribes more", _GROUP, [tags("consumers-a", version=3), tags("consumers-b", version=3)]),
    told("two is told of more", 40, client="two"),
    ask("two leaves", 35, clientID="two@1#2", consumerGroup=_GROUP, producerGroup="producers", CLIENT="two"),
    told("one is told of the leave", 40),
    ask("one is left", 38, consumerGroup=_GROUP, SHOWS="json"),
    ask("leave of nobody", 35, clientID="three@1#2", consumerGroup=_GROUP),
    ask("leave without a name", 35),
    ask("producers", 204, producerGroup="producers", SHOWS="json"),
    ask("producers of nobody", 204, producerGroup="nobody"),
    _check("check tags", tags("consumers-a", "red || blue")),
    _check("check a condition", sql("consumers-a", "price > 10")),
    _check("check nonsense", sql("consumers-a", "price >")),
    ask("check nothing", 46),
    heartbeat("a broadcast", "consumers-broadcast", [tags("consumers-a")], messageModel="BROADCASTING"),
    ask("progress of a broadcast", 208, consumerGroup="consumers-broadcast", SHOWS="json"),
    ask("heartbeat of nothing", 34),
    ask("heartbeat of nonsense", 34, "what"),
    heartbeat("an illegal group", "no good", [tags("consumers-a")], client="three"),
    ask("members of the illegal group", 38, consumerGroup="no good"),
    ask("groups of the topic", 300, topic="consumers-a", SHOWS="json"),
    ask("one leaves", 35, clientID="one@1#2", consumerGroup=_GROUP, producerGroup="producers"),
    ask("nobody is left", 38, consumerGroup=_GROUP),
]


def _locks(name: str, code: int, client: str, queues: Sequence[int], topic: str = "locks-a", **fields: Any) -> Step:
    wanted = [{"topic": topic, "brokerName": "broker-a", "queueId": queue} for queue in queues]
    body = {"consumerGroup": "locks-group", "clientId": client, "onlyThisBroker": False, "mqSet": wanted}
    return ask(name, code, body, **{"SHOWS": "json", **fields})


LOCKS: Final[list[Step]] = [
    *create_topic("locks-a", 3),
    heartbeat("one comes", "locks-group", [tags("locks-a")]),
    heartbeat("two comes", "locks-group", [tags("locks-a")], client="two"),
    _locks("one locks", 41, "one@1#2", [0, 1]),
    _locks("one locks again", 41, "one@1#2", [0, 1]),
    _locks("two gets the rest", 41, "two@1#2", [0, 1, 2], CLIENT="two"),
    _locks("one does not get that", 41, "one@1#2", [2]),
    _locks("two unlocks what it has not", 42, "two@1#2", [0], CLIENT="two"),
    _locks("and does not get it", 41, "two@1#2", [0], CLIENT="two"),
    _locks("one unlocks", 42, "one@1#2", [0]),
    _locks("two gets it now", 41, "two@1#2", [0, 1], CLIENT="two"),
    _locks("locks of nothing", 41, "one@1#2", []),
    _locks("locks of a queue that is not there", 41, "one@1#2", [9]),
    _locks("locks of an unknown topic", 41, "one@1#2", [0], "locks-none"),
    ask("without a body", 41),
    _locks("unlock without an answer", 42, "two@1#2", [0, 2], CLIENT="two", ONEWAY=True),
    _locks("after that", 41, "two@1#2", [1], CLIENT="two"),
    _locks("one takes over", 41, "one@1#2", [0, 1, 2]),
]
