"""Translates a subscription's filters to one SQL92 condition, which brokers evaluate. Pure.

Source: CloudEvents Subscriptions API, filter dialects exact, prefix, suffix, all, any, not and cesql (sql in drafts).
An attribute that an event lacks is never equal to anything, and so the opposite of such a filter takes the event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from millstream.model.errors import MessageRefused
from millstream.protocol.cloud_events import ATTRIBUTE_PREFIX
from millstream.proxy.http.webhooks.cesql import quote_text, translate_cesql

__all__ = ["MAX_FILTER_DEPTH", "condition_of_filters"]

MAX_FILTER_DEPTH: Final = 8
"""Filters in each other at most."""

_NAME: Final = re.compile("[a-z0-9]{1,64}")
_REMEDY: Final = "docs/http.md shows the filters of subscriptions."
_TESTS: Final[Mapping[str, str]] = {"exact": "=", "prefix": "STARTSWITH", "suffix": "ENDSWITH"}


def condition_of_filters(source: str | None, types: Sequence[str], filters: Sequence[Any]) -> str | None:
    """The condition of events of that source, of one of the types, that all filters take; None where all events do.

    Raises ILLEGAL_FILTER.
    """
    parts = []
    if source is not None:
        parts.append(_exactly("source", source))
    if types:
        parts.append(_join("OR", [_exactly("type", kind) for kind in types]))
    parts += [_condition(one, 1) for one in filters]
    return _join("AND", parts) if parts else None


def _exactly(name: str, value: str) -> str:
    return _test(name, "=", value)


def _test(name: str, sign: str, value: str) -> str:
    held = ATTRIBUTE_PREFIX + name
    # Not unknown but false without the attribute, so that NOT makes it true.
    return f"({held} IS NOT NULL AND {held} {sign} {quote_text(value)})"


def _join(word: str, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else "(" + f" {word} ".join(parts) + ")"


def _condition(given: Any, depth: int) -> str:
    if depth > MAX_FILTER_DEPTH:
        raise _illegal(f"filters are nested more than {MAX_FILTER_DEPTH} deep")
    if not isinstance(given, dict) or len(given) != 1:
        raise _illegal(f"each filter is an object with one member, not {str(given)[:80]}")
    [(dialect, value)] = given.items()
    read = _DIALECTS.get(dialect)
    if read is None:
        raise _illegal(f"{str(dialect)[:40]!r} is no dialect; {', '.join(_DIALECTS)} are")
    return read(dialect, value, depth)


def _attributes(dialect: str, value: Any, depth: int) -> str:
    if not isinstance(value, dict) or not value:
        raise _illegal(f"{dialect} is an object of attributes and texts")
    for name, wanted in value.items():
        if not _NAME.fullmatch(name) or not isinstance(wanted, str) or not wanted:
            raise _illegal(f"{dialect} asks for {name[:40]!r}: a name of lower-case letters and digits, and a text")
    return _join("AND", [_test(name, _TESTS[dialect], wanted) for name, wanted in value.items()])


def _several(dialect: str, value: Any, depth: int) -> str:
    if not isinstance(value, list) or not value:
        raise _illegal(f"{dialect} is a list of filters")
    return _join("AND" if dialect == "all" else "OR", [_condition(one, depth + 1) for one in value])


def _opposite(dialect: str, value: Any, depth: int) -> str:
    return f"(NOT {_condition(value, depth + 1)})"


def _expression(dialect: str, value: Any, depth: int) -> str:
    if not isinstance(value, str):
        raise _illegal(f"{dialect} is a text")
    return translate_cesql(value)


_DIALECTS: Final[Mapping[str, Callable[[str, Any, int], str]]] = {
    "exact": _attributes,
    "prefix": _attributes,
    "suffix": _attributes,
    "all": _several,
    "any": _several,
    "not": _opposite,
    "cesql": _expression,
    "sql": _expression,
}


def _illegal(words: str) -> MessageRefused:
    return MessageRefused("ILLEGAL_FILTER", f"The filters cannot be read: {words}.", remedy=_REMEDY)
