"""Subscription filters in RocketMQ's SQL92, and the choice of a filter by a client's expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from millstream.model.errors import MessageRefused
from millstream.model.filter import (
    READ_COST_ENTRIES,
    FilterKind,
    MessageFilter,
    check_expression_length,
    parse_tag_filter,
)
from millstream.model.sql_filter_parser import parse
from millstream.model.sql_filter_terms import Condition

__all__ = ["MAX_KEPT_FILTERS", "SqlFilter", "parse_filter", "parse_sql_filter"]


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


MAX_KEPT_FILTERS: Final = 512
"""Filters that are kept ready by their text: a pull or a receive brings the same text each time."""


@lru_cache(maxsize=MAX_KEPT_FILTERS)
def parse_filter(kind: str, expression: str) -> MessageFilter:
    """The filter of a text in the language `kind` (TAG or SQL92; blank means TAG). Raises ILLEGAL_FILTER."""
    if kind in ("", FilterKind.TAG):
        return parse_tag_filter(expression)
    if kind == FilterKind.SQL:
        return parse_sql_filter(expression)
    raise MessageRefused("ILLEGAL_FILTER", f"Filters are of the type TAG or SQL92, not {kind[:40]!r}.")
