"""Counting rules in sliding windows that end at each event, so that no burst is missed at a boundary."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millstream.streams.rules.chains import links_of
from millstream.streams.rules.rule import Rule

__all__ = ["slide_windows"]


def slide_windows(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The same rules; those that can count in sliding windows do.

    Rules that count alerts of each other stay as they are: these come at the ends of windows that lie side by side.
    """
    by_id = {rule.id: rule for rule in rules}
    links = {rule.id: links_of(rule, by_id) for rule in rules}
    chained = {rule for rule, linked in links.items() if linked} | {one.id for some in links.values() for one in some}
    return tuple(rule if rule.id in chained else _sliding(rule) for rule in rules)


def _sliding(rule: Rule) -> Rule:
    counted = rule.statistics
    if counted is None or counted.unfit_to_slide is not None:
        return rule
    return msgspec.structs.replace(rule, statistics=counted.with_sliding_windows())
