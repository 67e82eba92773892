"""Messages that a consumer sends back: again later, and set aside at last."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_group, create_topic, heartbeat, pull, send, tags
from interop.reference.steps import Step, ask

__all__ = ["RETRIES"]

_GROUP: Final = "retries-group"
_RETRY: Final = f"%RETRY%{_GROUP}"
_LETTERS: Final = f"%DLQ%{_GROUP}"


def _back(name: str, of: str, **fields: Any) -> Step:
    usual = {
        "offset": f"${{{of}.logOffset}}", "group": _GROUP, "delayLevel": 1, "originMsgId": "ID1",
        "originTopic": "retries-a", "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    return ask(name, 36, **{**usual, **fields})


RETRIES: Final[list[Step]] = [
    *create_topic("retries-a"),
    create_group(_GROUP, retryMaxTimes=2),
    heartbeat("comes", _GROUP, [tags("retries-a"), tags(_RETRY)]),
    send("message", "retries-a", "hello", {"TAGS": "red", "KEYS": "k", "UNIQ_KEY": "ID1", "own": "value"}),
    pull("first time", "retries-a", 0, _GROUP, UNTIL=0),
    _back("back", "message"),
    pull("again", _RETRY, 0, _GROUP, UNTIL=0),
    _back("back again", "again", maxReconsumeTimes=2),
    pull("once more", _RETRY, 1, _GROUP, UNTIL=0),
    _back("back for the last time", "once more", maxReconsumeTimes=2),
    pull("set aside", _LETTERS, 0, _GROUP, UNTIL=0),
    pull("no more of it", _RETRY, 2, _GROUP),
    _back("to the dead letters at once", "message", delayLevel=-1),
    pull("at once", _LETTERS, 1, _GROUP, UNTIL=0),
    _back("no such place", "message", offset=4_000_000_000_000),
    _back("a place within a message", "message", offset=3),
    _back("unknown group", "message", group="retries-strangers"),
    ask("without a place", 36, group=_GROUP, delayLevel=0),
    ask("without a group", 36, offset="${message.logOffset}", delayLevel=0),
    send(
        "sent by the consumer itself",
        _RETRY,
        "own retry",
        {"RETRY_TOPIC": "retries-a", "DELAY": "1"},
        a=_GROUP,
        j=1,
        l=16,
    ),
    pull("own retry", _RETRY, 2, _GROUP, UNTIL=0),
    send("sent once too often", _RETRY, "own letter", {"RETRY_TOPIC": "retries-a"}, a=_GROUP, j=17, l=16),
    pull("own letter", _LETTERS, 2, _GROUP, UNTIL=0),
    create_group("retries-none", retryQueueNums=0),
    _back("group without retries", "message", group="retries-none"),
]
