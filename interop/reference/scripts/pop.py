"""Messages that are popped: acknowledged, postponed, coming back; in order too."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, pop, send
from interop.reference.steps import Step, ask

__all__ = ["ORDERED_POP", "POP"]

_GROUP: Final = "pop-group"


def _ack(name: str, of: str, offset: int = 0, topic: str = "pop-a", group: str = _GROUP, **fields: Any) -> Step:
    usual = {"consumerGroup": group, "topic": topic, "queueId": 0, "extraInfo": f"${{{of}.handle}}", "offset": offset}
    return ask(name, 200051, **{**usual, **fields})


def _postpone(name: str, of: str, offset: int, invisible_ms: int, group: str = _GROUP, topic: str = "pop-a") -> Step:
    return ask(
        name, 200053, consumerGroup=group, topic=topic, queueId=0, extraInfo=f"${{{of}.handle}}", offset=offset,
        invisibleTime=invisible_ms,
    )  # fmt: skip


POP: Final[list[Step]] = [
    *create_topic("pop-a"),
    *create_topic("pop-b"),
    create_group(_GROUP),
    pop("nothing there", "pop-a", _GROUP),
    pop("nothing there, waiting", "pop-a", _GROUP, pollTime=500),
    send("one", "pop-a", "1", {"TAGS": "red", "UNIQ_KEY": "P1"}),
    send("two", "pop-a", "2", {"UNIQ_KEY": "P2"}),
    ask("look", 200052, topic="pop-a", queueId=0, maxMsgNums=32, consumerGroup=_GROUP, SHOWS="records", UNTIL=0),
    pop("first", "pop-a", _GROUP, maxMsgNums=1, UNTIL=0, UNTIL_BODY=True),
    pop("second", "pop-a", _GROUP, queueId=0, UNTIL=0, UNTIL_BODY=True),
    pop("no third", "pop-a", _GROUP),
    _ack("ack first", "first"),
    _ack("ack first again", "first"),
    _ack("ack beyond the end", "first", 99),
    _ack("ack of a bad queue", "first", queueId=5),
    _ack("ack of an unknown topic", "first", topic="pop-none"),
    _ack("ack with nonsense", "first", extraInfo="nonsense"),
    _postpone("postpone second", "second", 1, 1000),
    pop("second comes back", "pop-a", _GROUP, UNTIL=0, UNTIL_BODY=True),
    pop("too many", "pop-a", _GROUP, maxMsgNums=33),
    pop("unknown topic", "pop-none", _GROUP),
    pop("unknown group", "pop-b", "pop-strangers"),
    pop("bad queue", "pop-b", _GROUP, queueId=4),
    pop("bad filter", "pop-b", _GROUP, expType="SQL92", exp="price >"),
    ask("asks for news", 200054, consumerGroup=_GROUP, topic="pop-b", queueId=-1, pollTime=300, bornTime="${now}"),
    ask("asks who waits", 200055, consumerGroup=_GROUP, topic="pop-b", queueId=-1),
]

_ORDERED: Final = "ordered-pop-group"

ORDERED_POP: Final[list[Step]] = [
    *create_topic("ordered-pop", attributes="+message.type=FIFO"),
    create_group(_ORDERED, consumeMessageOrderly=True),
    send("one", "ordered-pop", "1", {"__SHARDINGKEY": "a", "UNIQ_KEY": "O1"}),
    send("two", "ordered-pop", "2", {"__SHARDINGKEY": "a", "UNIQ_KEY": "O2"}),
    pop("first", "ordered-pop", _ORDERED, order="true", maxMsgNums=1, UNTIL=0, UNTIL_BODY=True),
    pop("second has to wait", "ordered-pop", _ORDERED, order="true"),
    _ack("ack first", "first", 0, "ordered-pop", _ORDERED),
    pop("second", "ordered-pop", _ORDERED, order="true", UNTIL=0, UNTIL_BODY=True),
    _postpone("postpone second", "second", 1, 500, _ORDERED, "ordered-pop"),
    pop("second again", "ordered-pop", _ORDERED, order="true", UNTIL=0, UNTIL_BODY=True),
]
