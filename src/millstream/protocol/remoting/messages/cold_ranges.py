"""Where a queue's cold messages lie (code 9130, not RocketMQ's), for readers that open the object store themselves.

The body of the answer is JSON: the address of the store, and the ranges below the first offset that the broker's disk
has. Each range is the array of its fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from millstream.protocol.remoting.bodies import CamelBody
from millstream.protocol.remoting.fields import Request, number_field, text_field

__all__ = ["ColdRangeRow", "ColdRangesBody", "ColdRangesCall"]


@dataclass(frozen=True, slots=True)
class ColdRangesCall(Request):
    """A request for the ranges of a queue with offsets from `begin` to before `end`."""

    group: str = text_field("consumerGroup")
    topic: str = text_field("topic")
    queue_id: int = number_field("queueId")
    begin: int = number_field("beginOffset")
    end: int = number_field("endOffset")


class ColdRangeRow(msgspec.Struct, frozen=True, array_like=True):
    """A part of the queue and the object that it lies in; times are milliseconds since 1970."""

    first_queue_offset: int
    next_queue_offset: int
    first_stored_ms: int
    last_stored_ms: int
    key: str
    size_bytes: int
    """Of the whole object."""


class ColdRangesBody(CamelBody):
    """The answer. `url` is blank where the broker has no object store, or none that others can open."""

    url: str = ""
    endpoint: str = ""
    region: str = ""
    end_offset: int = 0
    """Behind the last offset that the answer is about; from `disk_offset` on the broker's disk has the messages."""
    disk_offset: int = 0
    ranges: list[ColdRangeRow] = msgspec.field(default_factory=list)
    """By offset. The first may begin before what was asked for, the last may end behind `end_offset`."""
