"""Converts Sigma correlations and older aggregations to statistics over rule hits.

Source: the Sigma Correlation Rules Specification 2.1.0. Beyond it, as in pySigma, `w` is a week in a time span, `neq` a
comparison, `value_median` a type, and a value_percentile says which one it is in `percentile`.

What the condition of a correlation asks of a measure: comparisons with numbers, all of which must hold.

The condition of a temporal correlation in words: its rules, joined by `and`, `or` and `not`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from pyparsing import ParseException
from sigma.correlations import (
    CorrelationConditionAND,
    CorrelationConditionNOT,
    CorrelationConditionOR,
    SigmaExtendedCorrelationCondition,
    SigmaRuleReference,
)
from sigma.exceptions import SigmaError

from millstream.streams.rule_formats.sigma.conditions import check_size
from millstream.streams.rule_formats.sigma.documents import SigmaDocument
from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.yaml.statistics import MAX_AT_LEAST, MAX_WINDOW_MS
from millstream.streams.rules.rule import Combination, Measure, MeasureKind, Rule, RuleStatistics

__all__ = [
    "MAX_COMBINED_RULES",
    "Bounds",
    "TemporalCondition",
    "aggregation",
    "bounds_of",
    "correlation",
    "generates",
    "rules_of",
]

MAX_COMBINED_RULES: Final = 8
"""Rules that a temporal correlation joins otherwise than by `and` alone or `or` alone: each set of them is a character
in every row of a hit."""

_NAME: Final = re.compile(r"[^\s()]+")
_JOINS: Final = frozenset(("and", "or", "not"))


class TemporalCondition:
    """A condition in words; `names` are its rules in the order in which they first stand there."""

    def __init__(self, words: str, names: Sequence[str], tree: Any) -> None:
        self.words = words
        self.names = tuple(names)
        self._tree = tree

    @classmethod
    def of(cls, condition: str, line: int | None) -> TemporalCondition:
        """The condition, read by pySigma. Raises Fault where it cannot be."""
        check_size(condition, line)
        names = list(dict.fromkeys(name for name in _NAME.findall(condition) if name not in _JOINS))
        # pySigma takes letters, digits and _ alone; a rule's name, or its id, has others as well.
        plain = _NAME.sub(lambda found: found[0] if found[0] in _JOINS else f"r{names.index(found[0])}", condition)
        try:
            tree = SigmaExtendedCorrelationCondition.parse(plain)
        except (SigmaError, ParseException):
            raise Fault("a condition in words joins rules by `and`, `or`, `not` and brackets", line) from None
        return cls(" ".join(condition.split()), names, tree)

    @property
    def join(self) -> Literal["and", "or", ""]:
        """The word that joins all rules where it is one alone; a single rule is joined by `and`."""
        if isinstance(self._tree, SigmaRuleReference):
            return "and"
        kinds = {type(node) for node in _inner(self._tree)}
        if kinds == {CorrelationConditionAND}:
            return "and"
        return "or" if kinds == {CorrelationConditionOR} else ""

    def combination(self, rules: Sequence[str]) -> Combination:
        """Which sets of these rules, which are those of the condition, fulfil it."""
        sets = ({rule for place, rule in enumerate(rules) if bits >> place & 1} for bits in range(1 << len(rules)))
        return Combination(self.words, "".join("01"[self._holds(self._tree, names)] for names in sets))

    def _holds(self, node: Any, seen: Collection[str]) -> bool:
        match node:
            case SigmaRuleReference(reference=name):
                return self.names[int(name[1:])] in seen
            case CorrelationConditionNOT(args=[part]):
                return not self._holds(part, seen)
            case CorrelationConditionAND(args=parts):
                return all(self._holds(part, seen) for part in parts)
            case CorrelationConditionOR(args=parts):
                return any(self._holds(part, seen) for part in parts)
        raise TypeError(f"no part of a condition: {node!r}")


def _inner(node: Any) -> list[Any]:
    if isinstance(node, SigmaRuleReference):
        return []
    return [node, *(inner for part in node.args for inner in _inner(part))]


Number = int | float


class Bounds(NamedTuple):
    """The bounds of a measure, named as those of `RuleStatistics`; None where there is none."""

    at_least: Number | None = None
    above: Number | None = None
    at_most: Number | None = None
    below: Number | None = None
    other_than: Number | None = None


def bounds_of(condition: Any, line: int | None, *, whole: bool) -> Bounds:
    """The bounds of a condition such as `{gte: 5, lt: 10}`; `whole` ones are of counts, which are 1 or more.

    Raises Fault where something else is written, or where no window with an event could fulfil it.
    """
    if not isinstance(condition, Mapping) or not condition:
        raise Fault("the condition must be a map such as gte: 10", line)
    least, above, most, below = -math.inf, -math.inf, math.inf, math.inf
    other_than: Number | None = None
    for key, number in condition.items():
        _check(key, number, line, whole=whole)
        match key:
            case "gte":
                least = max(least, number)
            case "gt":
                above = max(above, number)
            case "lte":
                most = min(most, number)
            case "lt":
                below = min(below, number)
            case "eq":
                least, most = max(least, number), min(most, number)
            case "neq":
                other_than = number
            case _:
                raise Fault(f"{key!r} is no comparison that is taken; gt, gte, lt, lte, eq and neq are", line)
    if whole:
        least, most = max(1, least, above + 1), min(most, below - 1)
        above, below = -math.inf, math.inf
    if most < least or min(most, below) <= above or below <= least or least == most == other_than:
        raise Fault("no window with an event can fulfil the condition", line)
    return Bounds(
        _finite_or_none(least), _finite_or_none(above), _finite_or_none(most), _finite_or_none(below), other_than
    )


def _finite_or_none(bound: Number) -> Number | None:
    return None if math.isinf(bound) else bound


def _check(key: Any, number: Any, line: int | None, *, whole: bool) -> None:
    if isinstance(number, bool) or not isinstance(number, int if whole else (int, float)):
        raise Fault(f"{key}: {number!r} is no {'whole ' if whole else ''}number", line)
    if whole and number > MAX_AT_LEAST:
        raise Fault(f"{key}: {number} is more than {MAX_AT_LEAST:,}", line)
    try:
        finite = math.isfinite(float(number))
    except OverflowError:
        finite = False
    if not finite:
        raise Fault(f"{key}: {str(number)[:20]} is no number of 64 bits", line)


_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,8})([smhdw])", re.ASCII)

_KINDS: Final = {
    "event_count": MeasureKind.EVENTS,
    "value_count": MeasureKind.VALUES,
    "temporal": MeasureKind.PARTS,
    "temporal_ordered": MeasureKind.SEQUENCE,
    "value_sum": MeasureKind.SUM,
    "value_avg": MeasureKind.AVERAGE,
    "value_percentile": MeasureKind.PERCENTILE,
    "value_median": MeasureKind.PERCENTILE,
}
_TEMPORAL: Final = (MeasureKind.PARTS, MeasureKind.SEQUENCE)
_MEDIAN: Final = 50
_ALL_PERCENT: Final = 100
_KEYS: Final = ("type", "rules", "group-by", "timespan", "aliases", "condition", "generate")
_BESIDE: Final = ("field", "percentile")
"""Keys of a condition that are no comparisons."""

_COUNT: Final = re.compile(
    r"count\(\s*(?P<of>[^()\s]*)\s*\)(?:\s+by\s+(?P<by>[^<>=!]+?))?\s*(?P<op><=|>=|==|=|<|>)\s*(?P<number>[0-9]{1,9})"
)
_OLD_BOUNDS: Final = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "=": "eq", "==": "eq"}


def rules_of(document: SigmaDocument) -> tuple[str, ...]:
    """The ids or names of the rules that a correlation is about, in its order. Raises Fault."""
    section = _section(document)
    named = section.get("rules")
    if named is None and isinstance(section.get("condition"), str):
        return TemporalCondition.of(section["condition"], document.line("correlation", "condition")).names
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Fault("a correlation needs a list of rules", document.line("correlation", "rules"))
    return tuple(names)


def generates(document: SigmaDocument) -> bool:
    """Whether the rules of the correlation give alerts of their own as well. Raises Fault."""
    for told, keys in ((_section(document), ("correlation", "generate")), (document.value, ("generate",))):
        if not isinstance(told.get("generate", False), bool):
            raise Fault("generate is true or false", document.line(*keys))
    return _section(document).get("generate") is True or document.value.get("generate") is True


def correlation(document: SigmaDocument, parts: Mapping[str, Rule], ids: Mapping[str, str]) -> RuleStatistics:
    """What the correlation counts; `parts` are its rules by the names that it calls them. Raises Fault.

    `ids` has the id of each rule that was read by its id and by its name.
    """
    section = _section(document)
    _check_keys(document, section)
    generates(document)
    kind = _kind(document, section.get("type"))
    by = _names(document, section.get("group-by"), "group-by")
    span_ms = _span_ms(section.get("timespan"), document.line("correlation", "timespan"))
    aliases = _aliases(document, section.get("aliases"), parts, ids)
    part_ids = tuple(part.id for part in parts.values())
    if kind in _TEMPORAL:
        kind, bounds, combination = _temporal(document, section.get("condition"), kind, tuple(parts))
        limits = bounds._asdict()
        return RuleStatistics(
            Measure(kind), span_ms, by, parts=part_ids, aliases=aliases, combination=combination, **limits
        )
    line = document.line("correlation", "condition")
    condition = section.get("condition")
    if not isinstance(condition, Mapping):
        raise Fault("a correlation that counts needs a condition such as gte: 10", line)
    measure = _measure(section["type"], kind, condition, line)
    compared = {key: value for key, value in condition.items() if key not in _BESIDE}
    bounds = bounds_of(compared, line, whole=not kind.is_number)
    return RuleStatistics(measure, span_ms, by, parts=part_ids if aliases else (), aliases=aliases, **bounds._asdict())


def aggregation(document: SigmaDocument, condition: str) -> tuple[str, RuleStatistics]:
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
    bounds = bounds_of({_OLD_BOUNDS[found["op"]]: int(found["number"])}, line, whole=True)
    span_ms = _span_ms(span, document.line("detection", "timeframe"))
    return before.strip(), RuleStatistics(Measure(kind, of), span_ms, by, **bounds._asdict())


def _check_keys(document: SigmaDocument, section: Mapping[str, Any]) -> None:
    """Refuse what looks like a misspelt key; others may be for somebody else."""
    for key in section:
        near = difflib.get_close_matches(str(key), _KEYS, n=1, cutoff=0.8)
        if near and key not in _KEYS:
            raise Fault(f"no key {key!r} is known; {near[0]!r} is", document.line("correlation", key))


def _section(document: SigmaDocument) -> Mapping[str, Any]:
    section = document.value["correlation"]
    if not isinstance(section, Mapping):
        raise Fault("a correlation is a map of keys and values", document.line("correlation"))
    return section


def _kind(document: SigmaDocument, name: Any) -> MeasureKind:
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


def _names(document: SigmaDocument, named: Any, key: str) -> tuple[str, ...]:
    names = [named] if isinstance(named, str) else [] if named is None else named
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Fault(f"{key} must be a list of fields", document.line("correlation", key))
    return tuple(dict.fromkeys(names))


def _measure(name: str, kind: MeasureKind, condition: Mapping[str, Any], line: int | None) -> Measure:
    field, percent = condition.get("field"), condition.get("percentile")
    if kind is MeasureKind.EVENTS:
        if percent is not None:
            raise Fault("'percentile' is for value_percentile alone", line)
        return Measure(kind)
    fields = [field] if isinstance(field, str) else field
    if not isinstance(fields, list) or not fields or not all(isinstance(one, str) and one for one in fields):
        raise Fault(f"{name} needs the name of a field: condition.field", line)
    if len(fields) > 1 and kind is not MeasureKind.VALUES:
        raise Fault(f"{name} measures one field, not {len(fields)}", line)
    if name == "value_percentile":
        if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= _ALL_PERCENT:
            raise Fault(f"value_percentile needs `percentile`, a whole number from 0 to 100, not {percent!r}", line)
    elif percent is not None:
        raise Fault("'percentile' is for value_percentile alone", line)
    percent = _MEDIAN if name == "value_median" else percent
    return Measure(kind, fields[0], tuple(dict.fromkeys(fields[1:])), percent)


def _temporal(
    document: SigmaDocument, condition: Any, kind: MeasureKind, names: tuple[str, ...]
) -> tuple[MeasureKind, Bounds, Combination | None]:
    """What is measured of the rules, the bounds of their number, and which of them there must be."""
    line = document.line("correlation", "condition")
    count, ordered = len(names), kind is MeasureKind.SEQUENCE
    bounds = Bounds(at_least=count)
    if isinstance(condition, str):
        words = TemporalCondition.of(condition, line)
        _check_same(words.names, names, line)
        if not words.join and not ordered:
            return MeasureKind.COMBINATION, Bounds(at_least=1), _combination(words, names, line)
        if ordered and words.join != "and":
            raise Fault("rules in order can be joined by `and` alone", line)
        bounds = Bounds(at_least=count if words.join == "and" else 1)
    elif condition is not None:
        bounds = bounds_of(condition, line, whole=True)
    if (bounds.at_least or 0) > count or (ordered and bounds.at_least != count):
        raise Fault(f"the condition cannot be counted over {count} rules", line)
    return kind, Bounds(at_least=count) if ordered else bounds, None


def _check_same(words: tuple[str, ...], names: tuple[str, ...], line: int | None) -> None:
    for missing in (*(name for name in words if name not in names), *(name for name in names if name not in words)):
        place = "condition" if missing in names else "list of rules"
        raise Fault(f"the {place} does not name {missing!r}", line)


def _combination(words: TemporalCondition, names: tuple[str, ...], line: int | None) -> Combination:
    if len(names) > MAX_COMBINED_RULES:
        reason = (
            f"only {MAX_COMBINED_RULES} rules can be joined so, not {len(names)}; by `and` or `or` alone any number"
        )
        raise Fault(reason, line)
    combination = words.combination(names)
    if "1" not in combination.holds[1:]:
        raise Fault("no window with an event can fulfil the condition", line)
    return combination


def _aliases(
    document: SigmaDocument, aliases: Any, parts: Mapping[str, Rule], ids: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """For each alias the field that stands for it in the events of each part, by the part's id."""
    line = document.line("correlation", "aliases")
    if aliases is None:
        return {}
    if not isinstance(aliases, Mapping):
        raise Fault("aliases must be a map of names", line)
    field_names: dict[str, dict[str, str]] = {}
    for alias, fields in aliases.items():
        if not isinstance(fields, Mapping) or not all(isinstance(field, str) for field in fields.values()):
            raise Fault(f"the alias {alias!r} must name a field for each rule", line)
        by_id = {ids.get(str(name), str(name)): field for name, field in fields.items()}
        called = {part.id: name for name, part in parts.items()}
        missing = [name for one, name in called.items() if one not in by_id]
        missing += [str(name) for name in fields if ids.get(str(name), str(name)) not in called]
        if missing:
            raise Fault(f"the alias {alias!r} does not fit the rules of the correlation: {missing[0]}", line)
        field_names[str(alias)] = by_id
    return field_names
