"""Offsets of queues and of groups."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, pull, send
from interop.reference.steps import Step, ask

__all__ = ["OFFSETS"]

_GROUP: Final = "offsets-readers"


def _queue(name: str, code: int, topic: str = "offsets-a", queue: int = 0, **fields: Any) -> Step:
    return ask(name, code, topic=topic, queueId=queue, **fields)


def _of_group(name: str, code: int, topic: str = "offsets-a", queue: int = 0, **fields: Any) -> Step:
    return _queue(name, code, topic, queue, **{"consumerGroup": _GROUP, **fields})


OFFSETS: Final[list[Step]] = [
    *create_topic("offsets-a", 2),
    create_group(_GROUP),
    _queue("max of an empty queue", 30),
    _queue("min of an empty queue", 31),
    _queue("earliest of an empty queue", 32),
    _queue("by time in an empty queue", 29, timestamp=0),
    _of_group("of a group that has not begun, empty queue", 14),
    _of_group("of a group that has not begun, no zero", 14, setZeroIfNotFound="false"),
    send("one", "offsets-a", "1"),
    send("two", "offsets-a", "2"),
    send("three", "offsets-a", "3"),
    pull("pull one", "offsets-a", 0, maxMsgNums=1, UNTIL=0),
    _queue("max", 30),
    _queue("max committed", 30, committed="true"),
    _queue("max of the other queue", 30, queue=1),
    _queue("min", 31),
    _queue("earliest", 32),
    _queue("by time 0", 29, timestamp=0),
    _queue("by time -1", 29, timestamp=-1),
    _queue("by time of the first", 29, timestamp="${pull one.storeTimestamp}"),
    _queue("by time to come", 29, timestamp="${now+60000}"),
    _queue("by time to come, upper", 29, timestamp="${now+60000}", boundaryType="UPPER"),
    _queue("by time 0, upper", 29, timestamp=0, boundaryType="upper"),
    _queue("by an unknown bound", 29, timestamp=0, boundaryType="MIDDLE"),
    *[_queue(f"{code} of a bad queue", code, queue=2, timestamp=0) for code in (29, 30, 31, 32)],
    *[_queue(f"{code} of an unknown topic", code, "offsets-none", timestamp=0) for code in (29, 30, 31, 32)],
    *[ask(f"{code} without a queue", code, topic="offsets-a", timestamp=0) for code in (29, 30, 31, 32)],
    _of_group("of a group that has not begun", 14),
    _of_group("zero is not wanted", 14, setZeroIfNotFound="false"),
    _of_group("of an unknown group", 14, consumerGroup="offsets-strangers"),
    _of_group("of a bad queue", 14, queue=2),
    _of_group("of an unknown topic", 14, "offsets-none"),
    _of_group("commit", 15, commitOffset=2),
    _of_group("committed", 14),
    _of_group("commit less", 15, commitOffset=1),
    _of_group("committed less", 14),
    _of_group("commit nothing", 15, commitOffset=-1),
    _of_group("committed nothing", 14),
    _of_group("commit beyond the end", 15, commitOffset=9),
    _of_group("committed beyond the end", 14),
    _of_group("commit of a bad queue", 15, queue=2, commitOffset=0),
    _of_group("commit of an unknown topic", 15, "offsets-none", commitOffset=0),
    _of_group("commit of an unknown group", 15, consumerGroup="offsets-strangers", commitOffset=0),
    ask("commit without an offset", 15, consumerGroup=_GROUP, topic="offsets-a", queueId=0),
    _of_group("commit again", 15, commitOffset=2),
    ask("statistics", 202, topic="offsets-a", SHOWS="json"),
    ask("statistics of an unknown topic", 202, topic="offsets-none"),
    ask("progress", 208, consumerGroup=_GROUP, SHOWS="json"),
    ask("progress in one topic", 208, consumerGroup=_GROUP, topic="offsets-a", SHOWS="json"),
    ask("progress in an unknown topic", 208, consumerGroup=_GROUP, topic="offsets-none", SHOWS="json"),
    ask("reset to a time", 222, topic="offsets-a", group=_GROUP, timestamp=0, isForce="true", SHOWS="json"),
    _of_group("after the reset", 14),
    pull("pull after the reset", "offsets-a", 2, _GROUP),
]
