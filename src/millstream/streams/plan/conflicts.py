"""Rows of several keys that fall on one primary key of a sink: Flink's ON CONFLICT."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.streams.plan.nodes import Node
from millstream.streams.plan.types import Schema

__all__ = ["OnConflict", "OnePerKey"]


class OnConflict(Enum):
    """Which of a key's rows counts; the values are the words behind DO."""

    LAST = "DEDUPLICATE"
    FIRST = "NOTHING"
    NONE = "ERROR"


@dataclass(frozen=True, slots=True)
class OnePerKey(Node):
    """At most one row for each value of `keys`, of all that are there: the last that came, the first, or an error.

    When that row is taken back the next one counts: a table that only knew the last row would lose the key.
    """

    input: Node
    keys: tuple[str, ...]
    on_conflict: OnConflict

    @property
    def schema(self) -> Schema:
        return self.input.schema
