"""Subscription filters: the protocol of all filters, and the filter by tag.

A tag expression is `*` or tags joined by `||`. The hash (Java's `String.hashCode`) that the consume queue holds lets a
reader pass over entries without touching the log; equal hashes are checked again on the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from millstream.model import properties as names
from millstream.model.errors import MessageRefused

__all__ = [
    "ALL",
    "MAX_EXPRESSION_CHARACTERS",
    "READ_COST_ENTRIES",
    "FilterKind",
    "MessageFilter",
    "TagFilter",
    "check_expression_length",
    "java_hash_code",
    "parse_tag_filter",
]

MAX_EXPRESSION_CHARACTERS = 16384
"""Characters of a filter's text at most, whatever its kind."""


READ_COST_ENTRIES = 4
"""What reading one message to judge it counts for in a request's share of work, in index entries that are looked at; a
filter adds what its own conditions cost."""


class FilterKind(StrEnum):
    """The language of a filter's text; the values are RocketMQ's expression types."""

    TAG = "TAG"
    SQL = "SQL92"


class MessageFilter(Protocol):
    """Which messages a subscriber wants. Filters are equal where kind and text are."""

    @property
    def kind(self) -> FilterKind:
        """The language of `expression`."""
        ...

    @property
    def expression(self) -> str:
        """The text that gives this filter when it is parsed again."""
        ...

    @property
    def takes_all(self) -> bool:
        """Whether it is certain that every message is wanted."""
        ...

    @property
    def read_cost(self) -> int:
        """What reading one message and judging it counts for, in index entries that are looked at."""
        ...

    def may_match(self, tags_code: int) -> bool:
        """Whether a message with this hash code of its tag can be wanted; False is certain."""
        ...

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties (reserved ones as well) is wanted."""
        ...


def java_hash_code(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, wrapped to int32."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (code * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags that a subscriber wants; an empty set means all messages."""

    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

    @property
    def kind(self) -> FilterKind:
        """See `MessageFilter`."""
        return FilterKind.TAG

    @property
    def expression(self) -> str:
        """See `MessageFilter`."""
        return "||".join(sorted(self.tags)) or "*"

    @property
    def takes_all(self) -> bool:
        """See `MessageFilter`."""
        return not self.tags

    @property
    def read_cost(self) -> int:
        """See `MessageFilter`."""
        return READ_COST_ENTRIES

    def may_match(self, tags_code: int) -> bool:
        """Whether an entry with this hash code can match; False is certain, True is to be checked on the text."""
        return not self.tags or tags_code in self.codes

    def matches(self, properties: Mapping[str, str]) -> bool:
        """See `MessageFilter`."""
        return not self.tags or properties.get(names.TAGS) in self.tags


ALL = TagFilter()


def check_expression_length(expression: str) -> None:
    """Refuse a filter's text (ILLEGAL_FILTER) that is over `MAX_EXPRESSION_CHARACTERS`."""
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise MessageRefused(
            "ILLEGAL_FILTER",
            f"The filter has {len(expression)} characters; the limit is {MAX_EXPRESSION_CHARACTERS}.",
        )


def parse_tag_filter(expression: str) -> TagFilter:
    """The filter of a subscription text. Blank text and `*` mean all; blanks around tags do not count."""
    check_expression_length(expression)
    tags = frozenset(filter(None, (tag.strip() for tag in expression.split("||"))))
    if not tags or tags == {"*"}:
        if expression.strip() and not tags:
            raise MessageRefused("ILLEGAL_FILTER", f"The filter {expression!r} names no tag.")
        return ALL
    return TagFilter(tags, frozenset(java_hash_code(tag) for tag in tags))
