"""The columns of a table of rule hits."""

from __future__ import annotations

from typing import Final

from millstream.streams.plan.types import BIGINT, DOUBLE, STRING, DataType, TypeKind

__all__ = ["HIT_COLUMNS", "SOURCE_QUEUE"]

SOURCE_QUEUE: Final = "queue"
"""A key of metadata that only plans use: the whole name of the queue, `broker/queue id`."""

_STRINGS: Final = DataType(TypeKind.ARRAY, elements=(STRING,))
_PAIRS: Final = DataType(TypeKind.MAP, elements=(STRING, STRING))

HIT_COLUMNS: Final[dict[str, DataType]] = {
    "rule": STRING,
    "title": STRING,
    "level": STRING,
    "kind": STRING,
    "author": STRING,
    "license": STRING,
    "tags": _STRINGS,
    "event": STRING,
    "event_time": DataType(TypeKind.TIMESTAMP_LTZ, precision=3),
    "version": BIGINT,
    "shows": _PAIRS,
    "measure": STRING,
    "window_ms": BIGINT,
    "at_least": BIGINT,
    "at_most": BIGINT,
    "lower": DOUBLE,
    "upper": DOUBLE,
    "other_than": DOUBLE,
    "bounds": STRING,
    "holds": STRING,
    "steps": BIGINT,
    "group_key": STRING,
    "measured": STRING,
    "hits": BIGINT,
}
"""Their types by name; a table has any of them. A time may be of either kind of TIMESTAMP, a number any integer."""
