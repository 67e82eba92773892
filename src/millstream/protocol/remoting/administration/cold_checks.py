"""Requests of tools about a broker's cold messages: codes 9134 to 9136, which are ours."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from millstream.protocol.remoting.bodies import CamelBody
from millstream.protocol.remoting.fields import Request, flag_field, number_field, text_field

__all__ = [
    "ColdProblem",
    "ColdQueueStatus",
    "ColdStatus",
    "ColumnStatus",
    "ObjectChecks",
    "Orphan",
    "OrphanQuery",
    "Orphans",
    "VerificationQuery",
]


class ColdQueueStatus(CamelBody):
    """What of a queue is in the object store."""

    topic: str
    queue_id: int
    objects: int = 0
    messages: int = 0
    bytes: int = 0
    """Of the objects, shared out by messages where an object has several queues."""
    first_offset: int = 0
    last_offset: int = 0
    behind_messages: int = 0
    """Messages behind the last one that are on the disk alone."""


class ColumnStatus(CamelBody):
    """The copy of a topic of the broker as Parquet files. `columns` are those that the files have."""

    topic: str
    files: int = 0
    rows: int = 0
    malformed: int = 0
    """Of the rows: those whose bodies do not fit the columns."""
    lost: int = 0
    """Messages that are damaged, and so in no row."""
    bytes: int = 0
    is_table: bool = False
    """Whether a catalogue has a table over the files."""
    columns: str = ""
    problem: str = ""
    """Why the copy does not go on, or not with the columns that the topic declares; blank while all is well."""


class ColdStatus(CamelBody):
    """Code 9134. `left_out` queues are not among `queues`."""

    queues: list[ColdQueueStatus]
    left_out: int
    objects: int
    behind_bytes: int
    """Bytes of the log that did not go up yet."""
    last_error: str
    copies: list[ColumnStatus] = msgspec.field(default_factory=list)
    """Of topics that have a copy, or declare one."""


@dataclass(frozen=True, slots=True)
class VerificationQuery(Request):
    """Code 9135: the objects behind that key, each `step`-th of all."""

    after: str = text_field("after", "")
    step: int = number_field("step", 1)


class ColdProblem(CamelBody):
    """An object that is not what its row says."""

    key: str
    topics: list[str]
    problem: str


class ObjectChecks(CamelBody):
    """The answer to code 9135; `after` is where to go on, blank at the end."""

    objects: int
    bytes: int
    problems: list[ColdProblem]
    after: str


@dataclass(frozen=True, slots=True)
class OrphanQuery(Request):
    """Code 9136: the objects behind that key that no row names."""

    after: str = text_field("after", "")
    deletes: bool = flag_field("delete")


class Orphan(CamelBody):
    """An object that no row names."""

    key: str
    bytes: int
    modified_ms: int


class Orphans(CamelBody):
    """The answer to code 9136: what was found among so many objects, and where to go on, blank at the end."""

    objects: int
    orphans: list[Orphan]
    after: str
