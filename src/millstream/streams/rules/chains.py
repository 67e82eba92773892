"""Rule chains: counting rules over alerts of counting rules, as in correlations of correlations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from millstream.streams.rules.rule import MeasureKind, Rule, RuleStatistics

__all__ = ["links_of", "part_marks", "unfit_chain"]

_COUNTING: Final = (MeasureKind.EVENTS, MeasureKind.PARTS, MeasureKind.COMBINATION, MeasureKind.SEQUENCE)
"""What may be measured of alerts, which have no fields but those that they are grouped by."""


def links_of(rule: Rule, rules: Mapping[str, Rule]) -> tuple[Rule, ...]:
    """Those of the rule's parts that count something themselves; `rules` has all by id."""
    parts = () if rule.statistics is None else dict.fromkeys(rule.statistics.parts)
    return tuple(rules[part] for part in parts if part in rules and rules[part].statistics is not None)


def unfit_chain(statistics: RuleStatistics, links: Sequence[Rule], rules: Mapping[str, Rule]) -> str | None:
    """Why a rule with these statistics cannot count the alerts of `links`; None where it can."""
    if statistics.measure.sliding:
        return "the alerts of rules that count are counted in windows side by side alone"
    if statistics.measure.kind not in _COUNTING:
        return "of correlations only their number, and which of them there were, can be counted"
    for link in links:
        inner = link.statistics
        assert inner is not None
        if links_of(link, rules):
            return f"{link.id!r} is a correlation of correlations itself; one such level is taken"
        if inner.measure.kind is MeasureKind.SEQUENCE:
            return f"{link.id!r} is about rules in order, which cannot be part of another correlation"
        if inner.measure.sliding:
            return f"{link.id!r} counts in sliding windows, which cannot be part of another correlation"
        meant = tuple(statistics.aliases.get(name, {}).get(link.id, name) for name in statistics.by)
        if meant and meant != inner.by:
            columns = ", ".join(inner.by) or "nothing"
            return f"{link.id!r} is grouped by {columns}; a correlation of it can be grouped by the same, in order"
    return None


def part_marks(statistics: RuleStatistics) -> dict[str, str]:
    """What a hit of each part is measured as: itself, its bit in a combination, or the numbers of its steps."""
    match statistics.measure.kind:
        case MeasureKind.PARTS:
            return {part: part for part in statistics.parts}
        case MeasureKind.COMBINATION:
            return {part: str(1 << place) for place, part in enumerate(statistics.parts)}
        case MeasureKind.SEQUENCE:
            return _steps(statistics.parts)
        case _:
            return {}


def _steps(parts: Iterable[str]) -> dict[str, str]:
    steps: dict[str, str] = {}
    for step, part in enumerate(parts, 1):
        steps[part] = f"{steps[part]},{step}" if part in steps else str(step)
    return steps
