"""Messages by key, by unique key and by their place in the log."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_topic, pull, send
from interop.reference.steps import Step, ask

__all__ = ["SEARCHING"]


def _find(name: str, key: str, topic: str = "searching-a", **fields: Any) -> Step:
    usual = {"topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": "${now+60000}"}
    return ask(name, 12, **{"SHOWS": "records", **usual, **fields})


SEARCHING: Final[list[Step]] = [
    *create_topic("searching-a"),
    send("one", "searching-a", "1", {"KEYS": "order-1 shared", "UNIQ_KEY": "AAAA1"}),
    send("two", "searching-a", "2", {"KEYS": "order-2 shared", "UNIQ_KEY": "AAAA2", "TAGS": "red"}),
    pull("readable", "searching-a", 1, UNTIL=0),
    _find("by a key", "order-1", UNTIL=0),
    _find("by a shared key", "shared"),
    _find("by a shared key, one wanted", "shared", maxNum=1),
    _find("by an unknown key", "order-3"),
    _find("before it was sent", "order-1", endTimestamp=1000),
    _find("by its unique key", "AAAA2", _UNIQUE_KEY_QUERY="true"),
    _find("by an unknown unique key", "AAAA3", _UNIQUE_KEY_QUERY="true"),
    _find("in an unknown topic", "order-1", "searching-none"),
    ask("without a key", 12, topic="searching-a", maxNum=1, beginTimestamp=0, endTimestamp=1),
    ask("by its place", 33, offset="${two.logOffset}", topic="searching-a", SHOWS="records"),
    ask("beyond the log", 33, offset=4_000_000_000_000, topic="searching-a"),
    ask("below the log", 33, offset=-1, topic="searching-a"),
    ask("without a place", 33, topic="searching-a"),
]
