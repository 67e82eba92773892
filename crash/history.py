"""What clients did and saw while faults happened: a file of JSON lines for each client, times from one clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import msgspec

__all__ = ["Event", "EventFields", "HistoryWriter", "Kind", "read_history"]

Kind = Literal[
    "invoke", "ok", "fail", "unknown", "delivered", "ack", "acked", "fault", "healed",
    "recall", "recalled", "not-recalled", "end", "ended", "saving", "saved",
    "reading", "read", "change", "changed", "fenced", "refused",
]  # fmt: skip


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line.

    A producer writes `invoke` before it sends and then `ok`, `fail` (surely not stored) or `unknown`. A consumer writes
    `delivered`, `ack` before it acknowledges and `acked` after the answer. Whoever breaks something writes `fault`, and
    `healed` once the product should serve again. S5 writes as well `recall` and how it ended, `end` of a transaction
    (with the resolution as its lane) and `ended`, and for the offsets `saving` when they are read and `saved`.

    Who reads a queue writes `reading` with its queue (and the offset, if it pulls) and then `read` with the queue's max
    offset; what a pull brought stands between as `delivered` with queue, offset and `read_id`. Who reads a register
    writes `reading` with its name and then `read` with its epoch and value. Who changes one writes `change` (with the
    epoch that it expects, or none for an election) and then `changed` with what it became, `fenced` (it had another
    epoch than expected) or `refused` (another cause, nothing changed). No answer: nobody knows whether it was done.
    """

    at_s: float
    kind: Kind
    message: str = ""
    """The name of the message, the read or the change, unique in the history; for a fault what was broken."""

    checksum: int = 0
    """CRC-32 of the body: as it was sent, or as it was delivered."""

    lane: str = ""
    """The queue or message group within which order is promised; empty where none is."""

    queue: str = ""
    queue_offset: int = -1
    """With `ok`: where the message was stored, if the producer was told. With `read`: the queue's max offset."""

    due_s: float = 0.0
    """With `invoke`: not to be delivered before this time."""

    broker_id: int = 0
    """With `reading`: whom it asked. 0 is the master, for clients; what a replica says may be behind."""

    read_id: str = ""
    """With `delivered`: the name of the read that brought it, if it was a pull."""

    register: str = ""
    """The register that is read or changed, such as a broker name whose set the controllers hold."""

    epoch: int = -1
    """The register's epoch, which grows with each change; with `change` the one that it expects."""

    value: str = ""
    """The register's value; with `change` the new one."""


class EventFields(TypedDict, total=False):
    """The fields of an event that only some kinds have."""

    checksum: int
    lane: str
    queue: str
    queue_offset: int
    due_s: float
    broker_id: int
    read_id: str
    register: str
    epoch: int
    value: str


class HistoryWriter:
    """Appends one client's lines to its file. Each is written at once, so that a kill of the client loses none."""

    def __init__(self, directory: Path, client: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = (directory / f"{client}.jsonl").open("ab", buffering=0)
        self._clock = clock

    def write(self, kind: Kind, message: str = "", **fields: Unpack[EventFields]) -> None:
        """Append one line with the present time. Safe for several threads."""
        event = Event(at_s=self._clock(), kind=kind, message=message, **fields)
        self._file.write(msgspec.json.encode(event) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(directory: Path) -> list[Event]:
    """The lines of all clients by time. A last line that a kill has cut short is passed over."""
    events: list[Event] = []
    for path in sorted(directory.glob("*.jsonl")):
        events += _events(path.read_bytes().split(b"\n"))
    return sorted(events, key=lambda event: event.at_s)


def _events(lines: Iterable[bytes]) -> list[Event]:
    *whole, torn = lines
    events = [msgspec.json.decode(line, type=Event) for line in whole]
    if torn:
        try:
            events.append(msgspec.json.decode(torn, type=Event))
        except msgspec.DecodeError:
            return events
    return events
