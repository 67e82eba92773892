"""Delayed messages: by level, by time, too far away, taken back."""

from __future__ import annotations

from typing import Final

from interop.reference.scripts.requests import create_topic, pull, send
from interop.reference.steps import Step, ask

__all__ = ["DELAYS"]

DELAYS: Final[list[Step]] = [
    *create_topic("delays-a"),
    *create_topic("delays-b"),
    send("by level", "delays-a", "level", {"DELAY": "1", "UNIQ_KEY": "D1", "TAGS": "red"}),
    pull("not there yet", "delays-a", subscription="*"),
    pull("there", "delays-a", UNTIL=0),
    send("by time", "delays-b", "time", {"TIMER_DELIVER_MS": "${now+2000}", "UNIQ_KEY": "D2"}),
    pull("there at its time", "delays-b", UNTIL=0),
    send("by seconds", "delays-b", "seconds", {"TIMER_DELAY_SEC": "1", "UNIQ_KEY": "D3"}),
    pull("there after seconds", "delays-b", 1, UNTIL=0),
    send("by milliseconds", "delays-b", "milliseconds", {"TIMER_DELAY_MS": "1500", "UNIQ_KEY": "D4"}),
    pull("there after milliseconds", "delays-b", 2, UNTIL=0),
    send("in the past", "delays-b", "past", {"TIMER_DELIVER_MS": "${now-5000}", "UNIQ_KEY": "D5"}),
    pull("there at once", "delays-b", 3, UNTIL=0),
    send("too far away", "delays-b", "far", {"TIMER_DELIVER_MS": "${now+2592000000}"}),
    send("no time", "delays-b", "none", {"TIMER_DELIVER_MS": "soon"}),
    send("no level", "delays-a", "none", {"DELAY": "soon"}),
    send("level 0", "delays-a", "zero", {"DELAY": "0", "UNIQ_KEY": "D6"}),
    pull("level 0 is there", "delays-a", 1, UNTIL=0),
    send("level 99", "delays-a", "far", {"DELAY": "99", "UNIQ_KEY": "D7"}),
    send("to be taken back", "delays-b", "recalled", {"TIMER_DELIVER_MS": "${now+60000}", "UNIQ_KEY": "D8"}),
    ask("take back", 370, topic="delays-b", recallHandle="${to be taken back.recallHandle}", producerGroup="producers"),
    ask("take back nonsense", 370, topic="delays-b", recallHandle="nonsense", producerGroup="producers"),
]
