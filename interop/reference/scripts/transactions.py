"""Transactions of remoting clients: committed, rolled back, asked for, refused."""

from __future__ import annotations

from typing import Any, Final

from interop.reference.scripts.requests import create_topic, pull, send
from interop.reference.steps import Step, ask, told

__all__ = ["TRANSACTIONS"]

_TOPIC: Final = "transactions-a"
_GROUP: Final = "transactions-producers"
_COMMIT, _ROLLBACK, _UNKNOWN = 8, 12, 0


def _half(name: str, body: str, key: str, **properties: str) -> Step:
    marks = {"TRAN_MSG": "true", "PGROUP": _GROUP, "UNIQ_KEY": key, **properties}
    return send(name, _TOPIC, body, marks, a=_GROUP, f=4, g="${now}")


def _end(name: str, of: str, ending: int, **fields: Any) -> Step:
    usual = {
        "topic": _TOPIC, "producerGroup": _GROUP, "tranStateTableOffset": f"${{{of}.queueOffset}}",
        "commitLogOffset": f"${{{of}.logOffset}}", "commitOrRollback": ending, "fromTransactionCheck": "false",
        "msgId": "ID", "transactionId": "ID",
    }  # fmt: skip
    return ask(name, 37, **{**usual, **fields})


_PRODUCER: Final = {
    "clientID": "one@1#2", "producerDataSet": [{"groupName": _GROUP}], "consumerDataSet": [],
    "heartbeatFingerprint": 0, "withoutSub": False,
}  # fmt: skip

TRANSACTIONS: Final[list[Step]] = [
    *create_topic(_TOPIC),
    *create_topic("transactions-b"),
    send("not the first record of the log", "transactions-b"),
    ask("producer comes", 34, _PRODUCER),
    _half("first half", "kept", "T1", TAGS="red", own="value"),
    pull("not there yet", _TOPIC),
    _end("commit", "first half", _COMMIT),
    pull("there", _TOPIC, UNTIL=0),
    _half("second half", "dropped", "T2"),
    _end("roll back", "second half", _ROLLBACK),
    pull("nothing came", _TOPIC, 1),
    _half("third half", "asked for", "T3"),
    _end("says nothing", "third half", _UNKNOWN),
    told("asked", 39, shows="records"),
    _end(
        "says after the question",
        "third half",
        _COMMIT,
        tranStateTableOffset="${asked.tranStateTableOffset}",
        commitLogOffset="${asked.commitLogOffset}",
        fromTransactionCheck="true",
    ),
    pull("there after the question", _TOPIC, 1, UNTIL=0),
    _half("fourth half", "guarded", "T4"),
    _end("by another group", "fourth half", _COMMIT, producerGroup="strangers"),
    _end("of another place", "fourth half", _COMMIT, tranStateTableOffset=7777),
    _end("of no place", "fourth half", _COMMIT, commitLogOffset=4_000_000_000_000),
    _end("of nonsense", "fourth half", 3),
    ask("without an ending", 37, producerGroup=_GROUP, tranStateTableOffset=0, commitLogOffset=0, msgId="ID"),
    _end("commit at last", "fourth half", _COMMIT, ONEWAY=True),
    pull("there at last", _TOPIC, 2, UNTIL=0),
    # Last, because the reference stores the message once more.
    _end("commit again", "first half", _COMMIT),
]
