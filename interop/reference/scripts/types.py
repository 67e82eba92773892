"""Messages of other types than their topic's, long headers and properties, and pulls of many."""

from __future__ import annotations

from typing import Final

from interop.reference.scripts.requests import create_topic, pull, send
from interop.reference.steps import Step, ask

__all__ = ["BIG_HEADERS", "TYPES"]

TYPES: Final[list[Step]] = [
    *create_topic("typed-normal", attributes="+message.type=NORMAL"),
    *create_topic("typed-fifo", attributes="+message.type=FIFO"),
    *create_topic("typed-delay", attributes="+message.type=DELAY"),
    send("level into normal", "typed-normal", "late", {"DELAY": "1", "UNIQ_KEY": "T1"}),
    pull("late in normal", "typed-normal", UNTIL=0, UNTIL_BODY=True),
    send("group into normal", "typed-normal", "grouped", {"__SHARDINGKEY": "g", "UNIQ_KEY": "T2"}),
    pull("grouped in normal", "typed-normal", 1, UNTIL=0, UNTIL_BODY=True),
    send("no group into fifo", "typed-fifo", "plain", {"UNIQ_KEY": "T3"}),
    pull("plain in fifo", "typed-fifo", UNTIL=0, UNTIL_BODY=True),
    send("long group into fifo", "typed-fifo", "long", {"__SHARDINGKEY": "${g*64}", "UNIQ_KEY": "T4"}),
    pull("long group in fifo", "typed-fifo", 1, UNTIL=0, UNTIL_BODY=True),
    send("no delay into delay", "typed-delay", "now", {"UNIQ_KEY": "T5"}),
    pull("now in delay", "typed-delay", UNTIL=0, UNTIL_BODY=True),
]

BIG_HEADERS: Final[list[Step]] = [
    *create_topic("big-headers"),
    ask("header of 100 KiB", 30, topic="big-headers", queueId=0, more="${x*100000}"),
    ask("header of 900 KB", 30, topic="big-headers", queueId=0, more="${x*900000}"),
    send("properties of 30,720 bytes", "big-headers", "big", {"UNIQ_KEY": "B1", "long": "${x*30700}"}),
    pull("big properties", "big-headers", UNTIL=0, UNTIL_BODY=True),
    send("properties beyond the record", "big-headers", "bigger", {"UNIQ_KEY": "B2", "long": "${x*33000}"}),
    send("properties beyond a header of 64 KiB", "big-headers", "bigger", {"UNIQ_KEY": "B3", "long": "${x*70000}"}),
    *[send(f"many {number}", "big-headers", str(number), {"UNIQ_KEY": f"M{number}"}) for number in range(40)],
    pull("more than 32", "big-headers", 1, maxMsgNums=100, UNTIL=0, UNTIL_BODY=True),
]
