"""Subscription filters by tag, and the tag's hash code as the consume queue holds it.

An expression is `*` or tags joined by `||`. The hash (Java's `String.hashCode`) lets a reader pass over entries
without touching the log; equal hashes are checked again on the text.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.errors import MessageRefused

__all__ = ["ALL", "TagFilter", "java_hash_code", "parse_tag_filter"]

_MAX_EXPRESSION_CHARACTERS = 16384


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

    def may_match(self, tags_code: int) -> bool:
        """Whether an entry with this hash code can match; False is certain, True is to be checked on the text."""
        return not self.tags or tags_code in self.codes

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag (None: without one) is wanted."""
        return not self.tags or tag in self.tags


ALL = TagFilter()


def parse_tag_filter(expression: str) -> TagFilter:
    """The filter of a subscription text. Blank text and `*` mean all; blanks around tags do not count."""
    if len(expression) > _MAX_EXPRESSION_CHARACTERS:
        raise MessageRefused(
            "ILLEGAL_FILTER",
            f"The filter has {len(expression)} characters; the limit is {_MAX_EXPRESSION_CHARACTERS}.",
        )
    tags = frozenset(filter(None, (tag.strip() for tag in expression.split("||"))))
    if not tags or tags == {"*"}:
        if expression.strip() and not tags:
            raise MessageRefused("ILLEGAL_FILTER", f"The filter {expression!r} names no tag.")
        return ALL
    return TagFilter(tags, frozenset(java_hash_code(tag) for tag in tags))
