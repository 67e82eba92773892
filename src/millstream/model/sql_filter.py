"""Subscription filters in RocketMQ's SQL92: conditions over a message's properties, as in `price > 5 AND area = 'n'`.

Three-valued logic: a message passes only where the whole condition is true, not where it is unknown. The tag is the
property TAGS; a filter that asks for it passes over other messages by their hash code, as the filter by tag does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.model.filter import READ_COST_ENTRIES, FilterKind, check_expression_length
from millstream.model.sql_filter_parser import parse
from millstream.model.sql_filter_terms import Condition

__all__ = ["SqlFilter", "parse_sql_filter"]


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """The messages for which a condition is true; made by `parse_sql_filter`."""

    expression: str
    read_cost: int = field(compare=False, repr=False)
    _holds: Condition = field(compare=False, repr=False)
    _tag_codes: frozenset[int] | None = field(compare=False, repr=False)

    @property
    def kind(self) -> FilterKind:
        """See `MessageFilter`."""
        return FilterKind.SQL

    @property
    def takes_all(self) -> bool:
        """See `MessageFilter`."""
        return False

    def may_match(self, tags_code: int) -> bool:
        """See `MessageFilter`."""
        return self._tag_codes is None or tags_code in self._tag_codes

    def matches(self, properties: Mapping[str, str]) -> bool:
        """See `MessageFilter`."""
        return self._holds(properties) is True


def parse_sql_filter(expression: str) -> SqlFilter:
    """The filter of a condition's text. Raises ILLEGAL_FILTER with the position and what was expected there."""
    check_expression_length(expression)
    parsed = parse(expression)
    return SqlFilter(expression, READ_COST_ENTRIES + parsed.conditions, parsed.holds, parsed.tag_codes)
