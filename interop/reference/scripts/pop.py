"""Messages that are popped: acknowledged, postponed, coming back; in order too."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, pop, pull, send
from interop.reference.steps import Step, ask

__all__ = ["ORDERED_POP", "POP", "POP_RESETS"]

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

_PARTLY: Final = "partly-ordered-group"
_RESET: Final = "reset-pop-group"


def _reset(name: str, topic: str, offset: int, group: str = _RESET) -> list[Step]:
    """What mqadmin's reset by queue asks for."""
    return [
        ask(f"{name}, commit", 15, consumerGroup=group, topic=topic, queueId=0, commitOffset=offset),
        ask(name, 222, topic=topic, group=group, timestamp=0, isForce="false", queueId=0, offset=offset, SHOWS="text"),
    ]


def _position(name: str, topic: str, group: str = _RESET) -> Step:
    return ask(name, 14, consumerGroup=group, topic=topic, queueId=0)


def _numbered(topic: str, count: int) -> list[Step]:
    """Messages, the last of them readable: until then the reference pops only what it has in its queue."""
    sends = [
        send(f"{topic} {number}", topic, str(number), {"UNIQ_KEY": f"{topic}-{number}"}) for number in range(count)
    ]
    return [*sends, pull(f"{topic} is readable", topic, count - 1, UNTIL=0)]


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
    # The request asks for order, the group does not.
    *create_topic("ordered-by-request"),
    create_group(_PARTLY),
    *_numbered("ordered-by-request", 5),
    pop(
        "three of five",
        "ordered-by-request",
        _PARTLY,
        order="true",
        maxMsgNums=3,
        invisibleTime=2000,
        UNTIL=0,
        UNTIL_BODY=True,
    ),
    _ack("ack the second", "three of five", 1, "ordered-by-request", _PARTLY),
    pop("no new one before the old", "ordered-by-request", _PARTLY, order="true"),
    _position("first is not consumed", "ordered-by-request", _PARTLY),
    pop(
        "the first again",
        "ordered-by-request",
        _PARTLY,
        order="true",
        maxMsgNums=1,
        pollTime=6000,
        UNTIL=0,
        UNTIL_BODY=True,
    ),
    _ack("ack late", "three of five", 0, "ordered-by-request", _PARTLY),
    pop("nothing behind it", "ordered-by-request", _PARTLY, order="true"),
    _ack("ack the first", "the first again", 0, "ordered-by-request", _PARTLY),
]

POP_RESETS: Final[list[Step]] = [
    *create_topic("pop-reset"),
    *create_topic("pop-reset-ordered"),
    create_group(_RESET),
    *_numbered("pop-reset", 6),
    pop("six", "pop-reset", _RESET, UNTIL=0, UNTIL_BODY=True),
    *_reset("back to two", "pop-reset", 2),
    pop("four", "pop-reset", _RESET, UNTIL=0, UNTIL_BODY=True),
    _ack("ack of before", "six", 0, "pop-reset", _RESET),
    _ack("ack of before, behind the reset", "six", 3, "pop-reset", _RESET),
    _position("position after acks of before", "pop-reset"),
    *_reset("on to five", "pop-reset", 5),
    pop("the last", "pop-reset", _RESET, UNTIL=0, UNTIL_BODY=True),
    *_numbered("pop-reset-ordered", 6),
    pop("six in order", "pop-reset-ordered", _RESET, order="true", UNTIL=0, UNTIL_BODY=True),
    *_reset("back to two in order", "pop-reset-ordered", 2),
    pop("four in order", "pop-reset-ordered", _RESET, order="true", UNTIL=0, UNTIL_BODY=True),
    _ack("ack of before in order", "six in order", 0, "pop-reset-ordered", _RESET),
    _ack("ack of before in order, behind the reset", "six in order", 3, "pop-reset-ordered", _RESET),
    _position("position in order", "pop-reset-ordered"),
    _ack("ack of two", "four in order", 2, "pop-reset-ordered", _RESET),
    _position("position in order after an ack", "pop-reset-ordered"),
    pop("nothing more in order", "pop-reset-ordered", _RESET, order="true"),
    *_reset("on to five in order", "pop-reset-ordered", 5),
    pop("the last in order", "pop-reset-ordered", _RESET, order="true", UNTIL=0, UNTIL_BODY=True),
]
