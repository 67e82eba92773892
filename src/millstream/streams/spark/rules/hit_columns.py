"""What the hits of one set of rules tell: of their rules, and of what rules count."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from millstream.streams.rules.chains import links_of, part_marks
from millstream.streams.rules.reference import FieldOf, number_of, text_of
from millstream.streams.rules.rule import MeasureKind, Rule, RuleSet, RuleStatistics

__all__ = ["Hits", "RuleColumns"]


def _statistics_of(rule: Rule) -> RuleStatistics | None:
    """The rule's statistics where it counts something: its bounds are whole numbers then."""
    return None if rule.statistics is None or rule.statistics.measure.kind.is_number else rule.statistics


_OF_RULES: Final[dict[str, Callable[[Rule], Any]]] = {
    "rule": lambda rule: rule.id,
    "title": lambda rule: rule.title,
    "level": lambda rule: rule.level,
    "kind": lambda rule: rule.kind,
    "author": lambda rule: rule.author,
    "license": lambda rule: rule.license,
    "tags": lambda rule: list(rule.tags),
    "measure": lambda rule: rule.statistics and rule.statistics.measure.name,
    "window_ms": lambda rule: rule.statistics and rule.statistics.window_ms,
    "at_least": lambda rule: (counted := _statistics_of(rule)) and counted.at_least,
    "at_most": lambda rule: (counted := _statistics_of(rule)) and counted.at_most,
    "lower": lambda rule: rule.statistics and rule.statistics.lower,
    "upper": lambda rule: rule.statistics and rule.statistics.upper,
    "other_than": lambda rule: rule.statistics and rule.statistics.other_than,
    "bounds": lambda rule: rule.statistics and rule.statistics.bounds,
    "holds": lambda rule: rule.statistics and rule.statistics.combination and rule.statistics.combination.holds,
    "steps": lambda rule: rule.statistics and len(rule.statistics.parts),
}
"""What a hit tells of its rule; `plan.hits` has the types."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Hits in the order of events: the numbers of each one's event and rule, and the part that it was, if any."""

    rows: np.ndarray[Any, Any]
    rules: np.ndarray[Any, Any]
    parts: dict[int, str] = field(default_factory=dict)


class RuleColumns:
    """What hits tell of the rules of one set, and which rules a hit counts for."""

    def __init__(self, rule_set: RuleSet) -> None:
        self.rules = rule_set.rules
        self._arrays: dict[tuple[str, pa.DataType], pa.Array] = {}
        self._counted_by: dict[int, list[int]] = {}
        numbers = {rule.id: number for number, rule in enumerate(self.rules)}
        by_id = {rule.id: rule for rule in self.rules}
        linked = {link.id for rule in self.rules if rule.enabled for link in links_of(rule, by_id)}
        for number, rule in enumerate(self.rules):
            parts = rule.statistics.parts if rule.enabled and rule.statistics is not None else ()
            for part in dict.fromkeys(parts):
                # Of rules that count their alerts are counted, which are not known here.
                if part in numbers and self.rules[numbers[part]].statistics is None:
                    self._counted_by.setdefault(numbers[part], []).append(number)
        self._silent = {number for number, rule in enumerate(self.rules) if _is_silent(rule, linked)}
        self._special = np.array(sorted({*self._counted_by, *self._silent}), np.int32)
        self._measures = [_measure_of(rule) for rule in self.rules]

    def column(self, name: str, arrow_type: pa.DataType, rules: np.ndarray[Any, Any]) -> pa.Array:
        """The values of a column that tells of the rules with those numbers."""
        array = self._arrays.get((name, arrow_type))
        if array is None:
            value = _OF_RULES[name]
            array = self._arrays[name, arrow_type] = pa.array([value(rule) for rule in self.rules], arrow_type)
        return array.take(pa.array(rules))

    def hits_of(self, rows: np.ndarray[Any, Any], rules: np.ndarray[Any, Any]) -> Hits:
        """The hits that a table tells: those of rules that alert, and behind each those of the rules that count it."""
        if not np.isin(rules, self._special).any():
            return Hits(rows, rules)
        all_rows: list[int] = []
        all_rules: list[int] = []
        parts: dict[int, str] = {}
        for row, rule in zip(rows.tolist(), rules.tolist(), strict=True):
            if rule not in self._silent:
                all_rows.append(row)
                all_rules.append(rule)
            for number in self._counted_by.get(rule, ()):
                parts[len(all_rows)] = self.rules[rule].id
                all_rows.append(row)
                all_rules.append(number)
        return Hits(np.array(all_rows, np.int32), np.array(all_rules, np.int32), parts)

    def group_key(self, rule: int, part: str | None, field_of: FieldOf) -> str | None:
        """The values of the fields by which the rule counts, as a JSON array; NULL where it does not count."""
        statistics = self.rules[rule].statistics
        if statistics is None:
            return None
        return text_of([field_of(_field_meant(statistics, name, part)) for name in statistics.by])

    def measure(self, rule: int, part: str | None, field_of: FieldOf) -> str | None:
        """What the rule measures of the event: a value, a number, a part or steps; NULL where it counts events."""
        return self._measures[rule](part, field_of)


def _is_silent(rule: Rule, linked: Collection[str]) -> bool:
    """Whether the rule's own hits are not told: other rules count them, or it counts those of others.

    Those of a rule that counts are told where it is `linked`: what it counts is counted again.
    """
    return (not rule.alerts and rule.id not in linked) or (rule.statistics is not None and bool(rule.statistics.parts))


Measured = Callable[[str | None, FieldOf], str | None]


def _measure_of(rule: Rule) -> Measured:
    statistics = rule.statistics
    if statistics is None:
        return lambda _part, _field_of: None
    if statistics.measure.kind.is_number:
        return _number_of(statistics)
    if statistics.measure.kind is MeasureKind.VALUES:
        return _value_of(statistics)
    marks = part_marks(statistics)
    return lambda part, _field_of: marks.get(part or "")


def _value_of(statistics: RuleStatistics) -> Measured:
    """The value of the measured field, or those of several as a JSON array; NULL where one of them is not there."""
    fields = statistics.measure.fields

    def value(part: str | None, field_of: FieldOf) -> str | None:
        found = [field_of(_field_meant(statistics, field, part)) for field in fields]
        if None in found:
            return None
        return text_of(found[0] if len(found) == 1 else found)

    return value


def _number_of(statistics: RuleStatistics) -> Measured:
    """The number of the measured field as SQL casts it to DOUBLE; NULL where it is none, or too large for 64 bits."""

    def value(part: str | None, field_of: FieldOf) -> str | None:
        found = number_of(field_of(_field_meant(statistics, statistics.measure.of, part)))
        try:
            number = math.nan if found is None else float(found)
        except OverflowError:
            return None
        return repr(number) if math.isfinite(number) else None

    return value


def _field_meant(statistics: RuleStatistics, name: str, part: str | None) -> str:
    """The field that a name stands for in the events of a part."""
    return statistics.aliases.get(name, {}).get(part or "", name)
