"""The condition of a temporal correlation in words: its rules, joined by `and`, `or` and `not`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal

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
from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rules.rule import Combination

__all__ = ["MAX_COMBINED_RULES", "RuleWords"]

MAX_COMBINED_RULES: Final = 8
"""Rules that a temporal correlation joins otherwise than by `and` alone or `or` alone: each set of them is a character
in every row of a hit."""

_NAME: Final = re.compile(r"[^\s()]+")
_JOINS: Final = frozenset(("and", "or", "not"))


class RuleWords:
    """A condition in words; `names` are its rules in the order in which they first stand there."""

    def __init__(self, words: str, names: Sequence[str], tree: Any) -> None:
        self.words = words
        self.names = tuple(names)
        self._tree = tree

    @classmethod
    def of(cls, condition: str, line: int | None) -> RuleWords:
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
