"""The filter that a client's words ask for: a kind and a text."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from millstream.model.errors import MessageRefused
from millstream.model.filter import FilterKind, MessageFilter, parse_tag_filter
from millstream.model.sql_filter import parse_sql_filter

__all__ = ["MAX_KEPT_FILTERS", "parse_filter"]

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
