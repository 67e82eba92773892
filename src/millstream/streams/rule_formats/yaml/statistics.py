"""Statistics of our YAML form over many events: `count`, `distinct`, `sequence`, `sum` and others."""

from __future__ import annotations

import math
from typing import Final

import yaml

from millstream.streams.connectors.options import milliseconds
from millstream.streams.rule_formats.yaml_document import Entries, items, refuse, scalar, text
from millstream.streams.rules.reference import number_of
from millstream.streams.rules.rule import Measure, MeasureKind, RuleStatistics

__all__ = ["MAX_AT_LEAST", "MAX_WINDOW_MS", "MEASURES", "statistics_of"]

MAX_WINDOW_MS: Final = 31 * 86_400_000
"""The longest window of a statistical rule, in milliseconds."""

MAX_AT_LEAST: Final = 1_000_000_000
"""The largest number that a statistical rule may wait for."""

_MAX_PERCENT: Final = 100

MEASURES: Final = {
    "count": MeasureKind.EVENTS,
    "distinct": MeasureKind.VALUES,
    "sequence": MeasureKind.SEQUENCE,
    "sum": MeasureKind.SUM,
    "average": MeasureKind.AVERAGE,
    "minimum": MeasureKind.MINIMUM,
    "maximum": MeasureKind.MAXIMUM,
    "percentile": MeasureKind.PERCENTILE,
}
"""The words of a rule that say what it measures; it has one of them."""

_TUMBLING: Final = "tumbling"
_WINDOWS: Final = (_TUMBLING, "sliding")
_BOUNDS: Final = ("at least", "above", "at most", "below")


def statistics_of(entries: Entries) -> RuleStatistics | None:
    """What a rule measures; None where it does not. Raises YamlFault."""
    there = [(word, kind, entries.left[word][0]) for word, kind in MEASURES.items() if word in entries.left]
    if not there:
        return None
    if len(there) > 1:
        refuse(there[1][2], f"A rule has {there[0][0]!r} or {there[1][0]!r}, not both.")
    [(word, kind, key)] = there
    inner = Entries(entries.need(word, "a map with within, by and at least"), "a map with within, by and at least")
    windows = inner.take("windows")
    found = _of_number(kind, key, inner) if kind.is_number else _of_count(kind, inner)
    return found if windows is None else _in_windows(found, windows)


def _in_windows(found: RuleStatistics, windows: yaml.Node) -> RuleStatistics:
    word = text(windows, " or ".join(_WINDOWS))
    if word not in _WINDOWS:
        refuse(windows, f"Expected {' or '.join(_WINDOWS)}, found {word[:60]!r}.")
    if word == _TUMBLING:
        return found
    if found.unfit_to_slide is not None:
        refuse(windows, f"{found.unfit_to_slide[:1].upper()}{found.unfit_to_slide[1:]}.")
    return found.with_sliding_windows()


def _of_count(kind: MeasureKind, inner: Entries) -> RuleStatistics:
    of, parts = _counted_field(kind, inner)
    by, window_ms = _window(inner)
    in_order = kind is MeasureKind.SEQUENCE and "at least" not in inner.left
    at_least = len(parts) if in_order else _whole(inner.need("at least", "a whole number"))
    most = inner.take("at most")
    at_most = None if most is None else _whole(most)
    inner.end(("of", "rules", "by", "within", "windows", "at least", "at most"))
    return RuleStatistics(Measure(kind, of), window_ms, by, at_least, parts, at_most)


def _of_number(kind: MeasureKind, key: yaml.Node, inner: Entries) -> RuleStatistics:
    of = text(inner.need("of", "the field whose numbers are measured"), "the name of a field")
    percent = None
    if kind is MeasureKind.PERCENTILE:
        percent = _whole(inner.need("percent", "a whole number from 0 to 100"), least=0, most=_MAX_PERCENT)
    parts = _names(inner.take("rules"), "the id of a rule")
    by, window_ms = _window(inner)
    bounds = {word: _number(node) for word in _BOUNDS if (node := inner.take(word)) is not None}
    inner.end(("of", *(("percent",) if percent is not None else ()), "rules", "by", "within", "windows", *_BOUNDS))
    if not bounds:
        refuse(key, f"Expected what the number must be: {', '.join(_BOUNDS)}.")
    measure = Measure(kind, of, percent=percent)
    least, above, most, below = map(bounds.get, _BOUNDS)
    found = RuleStatistics(measure, window_ms, by, least, parts, most, above=above, below=below)
    if found.lower is not None and found.upper is not None and found.lower > found.upper:
        refuse(key, f"No number is {found.bounds}.")
    return found


def _window(inner: Entries) -> tuple[tuple[str, ...], int]:
    by = _names(inner.take("by"), "the name of a field")
    return by, _window_ms(inner.need("within", "a length of time such as 10 min"))


def _names(node: yaml.Node | None, what: str) -> tuple[str, ...]:
    return () if node is None else tuple(dict.fromkeys(text(one, what) for one in items(node)))


def _counted_field(kind: MeasureKind, inner: Entries) -> tuple[str, tuple[str, ...]]:
    """The field whose values are counted, and the rules whose events are."""
    if kind is MeasureKind.SEQUENCE:
        listed = inner.need("of", "a list of rules, in their order")
        parts = tuple(text(one, "the id of a rule") for one in items(listed))
        if len(parts) < 2:
            refuse(listed, "Expected two rules or more, in their order.")
        return "", parts
    of = inner.need("of", "the field whose values are counted") if kind is MeasureKind.VALUES else None
    return "" if of is None else text(of, "the name of a field"), _names(inner.take("rules"), "the id of a rule")


def _window_ms(node: yaml.Node) -> int:
    written = text(node, "a length of time such as 10 min")
    try:
        window_ms = milliseconds(written)
    except ValueError:
        refuse(node, f"Expected a length of time such as 30 s, 10 min, 2 h or 1 d, found {written[:60]!r}.")
    if not 0 < window_ms <= MAX_WINDOW_MS:
        refuse(node, f"Expected a length of time up to {MAX_WINDOW_MS // 86_400_000} d, found {written[:60]!r}.")
    return window_ms


def _whole(node: yaml.Node, least: int = 1, most: int = MAX_AT_LEAST) -> int:
    value = scalar(node, "a whole number")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        refuse(node, f"Expected a whole number from {least} to {most:,}, found {node.value[:60]!r}.")
    return value


def _number(node: yaml.Node) -> int | float:
    number = number_of(scalar(node, "a number"))
    try:
        if number is not None and math.isfinite(float(number)):
            return number
    except OverflowError:
        pass
    refuse(node, f"Expected a number of 64 bits, found {node.value[:60]!r}.")
