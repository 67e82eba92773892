"""What may stand in a hint, between /*+ and */: the hints of that place, their keys, and values that are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.sql.parser.hint_parser import QUERY_HINTS, TABLE_HINTS

__all__ = ["LOOKUP_KEYS", "hinted"]

LOOKUP_KEYS = ("table", "async", "output-mode", "capacity", "timeout", "retry-predicate", "retry-strategy",
               "fixed-delay", "max-attempts")  # fmt: skip
"""The keys that a LOOKUP hint has in Flink."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "async": ("true", "false"),
    "output-mode": ("ordered", "allow_unordered"),
    "retry-predicate": ("lookup_miss",),
    "retry-strategy": ("fixed_delay",),
}


def hinted(
    words: Sequence[str], *, behind_select: bool, in_string: bool, names: Sequence[str], options: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Candidates and their kinds behind the `words` of an open hint.

    `names` are the tables and aliases of FROM, `options` those of the table that OPTIONS stands behind.
    """
    opened = max((place for place, word in enumerate(words) if word == "("), default=0)
    name = words[opened - 1].upper() if opened and ")" not in words[opened:] else ""
    if not name:
        if not in_string:
            yield from ((f"{hint}(", "keyword") for hint in (QUERY_HINTS if behind_select else TABLE_HINTS))
        return
    if name in ("OPTIONS", "LOOKUP") and in_string:
        yield from _pairs(name, words[opened + 1 :], names, options)
    elif in_string == (name == "STATE_TTL") and words[-1] != "=":
        yield from ((table, "table") for table in names)


def _pairs(
    name: str, words: Sequence[str], names: Sequence[str], options: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Keys of OPTIONS and LOOKUP, and behind an = the values that a key may have."""
    connector = CONNECTORS.get(options.get("connector", ""))
    if words[-1:] != ["="]:
        given = {word.strip("'") for word in words}
        known = LOOKUP_KEYS if name == "LOOKUP" else [option.name for option in connector.options] if connector else []
        yield from ((key, "option") for key in known if key not in given)
        return
    key = words[-2].strip("'") if len(words) > 1 else ""
    if name == "LOOKUP":
        values: Sequence[str] = names if key == "table" else _VALUES.get(key, ())
    else:
        option = connector.find(key) if connector is not None else None
        values = option.choices if option is not None else ()
    yield from ((value, "table" if key == "table" else "value") for value in values)
