"""Rules that tests make by the dozen."""

from __future__ import annotations

from collections.abc import Callable

from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.rule import Rule, RuleSet

__all__ = ["rule_named", "with_rules"]


def rule_named(name: str, operand: str = "cmd.exe", *, enabled: bool = True) -> Rule:
    return Rule(name, f"Title of {name}", Predicate("Image", Op.ENDS, (operand,), caseless=True), enabled=enabled)


def with_rules(*rules: Rule) -> Callable[[RuleSet], RuleSet]:
    """A change that puts these rules in place of all."""
    return lambda before: RuleSet(before.version, rules, before.paths)
