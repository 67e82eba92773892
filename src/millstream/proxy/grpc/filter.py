"""The filter of a subscription or a receive."""

from __future__ import annotations

from millstream.model.filter import FilterKind, MessageFilter
from millstream.model.filter_expression import parse_filter
from millstream.protocol.grpc import messages as m

__all__ = ["message_filter"]

# As plain texts: what is kept is found by their hash, and an enum's runs in Python.
_TAG, _SQL = FilterKind.TAG.value, FilterKind.SQL.value


def message_filter(expression: m.FilterExpression) -> MessageFilter:
    """The filter that the expression says; one without a type is by tag. Raises ILLEGAL_FILTER."""
    return parse_filter(_SQL if expression.type == m.SQL else _TAG, expression.expression)
