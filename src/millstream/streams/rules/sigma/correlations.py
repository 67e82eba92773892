"""Correlations of Sigma, and the older aggregations of its conditions, as statistics over the hits of rules.

Source: the Sigma Correlation Rules Specification 2.0.0. Beyond it, `w` is a week in a time span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from millstream.streams.rules.rule import Measure, MeasureKind, Rule, Statistics
from millstream.streams.rules.sigma.documents import Document
from millstream.streams.rules.sigma.fault import Fault
from millstream.streams.rules.yaml_form import MAX_AT_LEAST, MAX_WINDOW_MS

__all__ = ["aggregation", "correlation", "generates", "rules_of"]

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,8})([smhdw])", re.ASCII)

_KINDS: Final = {
    "event_count": MeasureKind.EVENTS,
    "value_count": MeasureKind.VALUES,
    "temporal": MeasureKind.PARTS,
    "temporal_ordered": MeasureKind.SEQUENCE,
}

_COUNT: Final = re.compile(
    r"count\(\s*(?P<of>[^()\s]*)\s*\)(?:\s+by\s+(?P<by>[^<>=!]+?))?\s*(?P<op><=|>=|==|=|<|>)\s*(?P<number>[0-9]{1,9})"
)
_OLD_BOUNDS: Final = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "eq", "==": "eq"}


def rules_of(document: Document) -> tuple[str, ...]:
    """The ids or names of the rules that a correlation is about, in its order. Raises Fault."""
    section = _section(document)
    named = section.get("rules")
    if named is None and isinstance(section.get("condition"), str):
        words = section["condition"].replace("(", " ").replace(")", " ").split()
        named = list(dict.fromkeys(word for word in words if word not in _WORDS))
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Fault("a correlation needs a list of rules", document.line("correlation", "rules"))
    return tuple(names)


_WORDS: Final = frozenset(("and", "or", "not"))


def generates(document: Document) -> bool:
    """Whether the rules of the correlation give alerts of their own as well."""
    return _section(document).get("generate") is True


def correlation(document: Document, parts: Mapping[str, Rule]) -> Statistics:
    """What the correlation counts; `parts` are its rules by the names that it calls them. Raises Fault."""
    section = _section(document)
    kind = _kind(document, section.get("type"))
    by = _names(document, section.get("group-by"), "group-by")
    least, most = _bounds(document, section.get("condition"), kind, len(parts))
    aliases = _aliases(document, section.get("aliases"), parts)
    of = _counted_field(document, section) if kind is MeasureKind.VALUES else ""
    apart = bool(aliases) or kind in (MeasureKind.PARTS, MeasureKind.SEQUENCE)
    return Statistics(
        Measure(kind, of),
        _span_ms(section.get("timespan"), document.line("correlation", "timespan")),
        by,
        least,
        tuple(part.id for part in parts.values()) if apart else (),
        most,
        aliases,
    )


def aggregation(document: Document, condition: str) -> tuple[str, Statistics]:
    """The detection part of a condition such as `selection | count(user) by host > 5`, and what it counts.

    Raises Fault for other aggregations, which correlations have replaced.
    """
    line = document.line("detection", "condition")
    before, _, counted = condition.partition("|")
    found = _COUNT.fullmatch(counted.strip())
    if found is None:
        raise Fault(f"the aggregation {counted.strip()!r} is not taken: write it as a correlation", line)
    span = document.value["detection"].get("timeframe")
    if span is None:
        raise Fault("an aggregation needs a timeframe", document.line("detection"))
    of, by = found["of"], tuple(name.strip() for name in (found["by"] or "").split(",") if name.strip())
    kind = MeasureKind.VALUES if of else MeasureKind.EVENTS
    least, most = _range({_OLD_BOUNDS[found["op"]]: int(found["number"])}, line)
    span_ms = _span_ms(span, document.line("detection", "timeframe"))
    return before.strip(), Statistics(Measure(kind, of), span_ms, by, least, (), most)


def _section(document: Document) -> Mapping[str, Any]:
    section = document.value["correlation"]
    if not isinstance(section, Mapping):
        raise Fault("a correlation is a map of keys and values", document.line("correlation"))
    return section


def _kind(document: Document, name: Any) -> MeasureKind:
    if not isinstance(name, str) or name not in _KINDS:
        raise Fault(
            f"the correlation type {name!r} is not taken; {', '.join(_KINDS)} are", document.line("correlation", "type")
        )
    return _KINDS[name]


def _span_ms(span: Any, line: int | None) -> int:
    found = _SPAN.fullmatch(str(span))
    if found is None:
        raise Fault(f"{span!r} is no time span: a number and one of s, m, h, d, w is, as in 15m", line)
    span_ms = int(found[1]) * _UNIT_MS[found[2]]
    if span_ms > MAX_WINDOW_MS:
        raise Fault(f"the time span {span} is longer than {MAX_WINDOW_MS // _UNIT_MS['d']} days", line)
    return span_ms


def _names(document: Document, named: Any, key: str) -> tuple[str, ...]:
    names = [named] if isinstance(named, str) else [] if named is None else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Fault(f"{key} must be a list of fields", document.line("correlation", key))
    return tuple(dict.fromkeys(names))


def _bounds(document: Document, condition: Any, kind: MeasureKind, parts: int) -> tuple[int, int | None]:
    line = document.line("correlation", "condition")
    ordered = kind is MeasureKind.SEQUENCE
    if kind in (MeasureKind.EVENTS, MeasureKind.VALUES):
        if not isinstance(condition, Mapping):
            raise Fault("a correlation that counts needs a condition such as gte: 10", line)
        return _range({key: value for key, value in condition.items() if key != "field"}, line)
    if condition is None:
        return parts, None
    least, most = _words(condition, parts, line) if isinstance(condition, str) else _range(condition, line)
    if least > parts or (ordered and least != parts):
        raise Fault(f"the condition cannot be counted over {parts} rules", line)
    return least, most


def _words(condition: str, parts: int, line: int | None) -> tuple[int, int | None]:
    """The condition of a temporal correlation in words: all of its rules, or one of them."""
    joined = {word for word in condition.replace("(", " ").replace(")", " ").split() if word in _WORDS}
    if joined <= {"and"}:
        return parts, None
    if joined == {"or"}:
        return 1, None
    raise Fault("a condition in words can join its rules by `and` alone or by `or` alone", line)


def _range(condition: Any, line: int | None) -> tuple[int, int | None]:
    if not isinstance(condition, Mapping) or not condition:
        raise Fault("the condition must be a map such as gte: 10", line)
    least, most = 1, None
    for key, number in condition.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise Fault(f"{key}: {number!r} is no whole number", line)
        if number > MAX_AT_LEAST:
            raise Fault(f"{key}: {number} is more than {MAX_AT_LEAST:,}", line)
        match key:
            case "gte" | "gt":
                least = max(least, number + (key == "gt"))
            case "lte" | "lt":
                most = min(number - (key == "lt"), number if most is None else most)
            case "eq":
                least, most = max(least, number), number
            case _:
                raise Fault(f"{key!r} is no comparison that is taken; gt, gte, lt, lte and eq are", line)
    if most is not None and most < least:
        raise Fault("no window with an event can fulfil the condition", line)
    return least, most


def _counted_field(document: Document, section: Mapping[str, Any]) -> str:
    field = section["condition"].get("field")
    if not isinstance(field, str):
        raise Fault(
            "value_count needs the name of one field: condition.field", document.line("correlation", "condition")
        )
    return field


def _aliases(document: Document, aliases: Any, parts: Mapping[str, Rule]) -> dict[str, dict[str, str]]:
    """For each alias the field that stands for it in the events of each part, by the part's id."""
    line = document.line("correlation", "aliases")
    if aliases is None:
        return {}
    if not isinstance(aliases, Mapping):
        raise Fault("aliases must be a map of names", line)
    told: dict[str, dict[str, str]] = {}
    for alias, fields in aliases.items():
        if not isinstance(fields, Mapping) or not all(isinstance(field, str) for field in fields.values()):
            raise Fault(f"the alias {alias!r} must name a field for each rule", line)
        missing = sorted(set(parts) - set(fields)) + sorted(set(map(str, fields)) - set(parts))
        if missing:
            raise Fault(f"the alias {alias!r} does not fit the rules of the correlation: {missing[0]}", line)
        told[str(alias)] = {parts[name].id: field for name, field in fields.items()}
    return told
