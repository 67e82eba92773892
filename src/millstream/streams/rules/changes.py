"""Changes of a rule set: add, enable, disable and remove rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import msgspec

from millstream.streams.errors import RuleError
from millstream.streams.rules.conditions import any_of
from millstream.streams.rules.imported_rules import ImportedRules, Refusal, dotted_paths
from millstream.streams.rules.rule import Rule, RuleSet

__all__ = ["MergeResult", "choose_rules", "find_rule", "merge_rules", "remove_rules", "switch_rules"]


class MergeResult(msgspec.Struct, frozen=True):
    """What became of rules that were read: ids of those that are new, changed and as they were; what was refused."""

    rule_set: RuleSet
    added: tuple[str, ...]
    changed: tuple[str, ...]
    same: tuple[str, ...]
    refused: tuple[Refusal, ...]


def merge_rules(before: RuleSet, found: ImportedRules) -> MergeResult:
    """The set with the rules that were read: those with known ids take the places of the old ones, others come behind.

    A rule that was switched off stays so. A rule that counts events of rules that there are not is refused.
    """
    old_rules = {rule.id: rule for rule in before.rules}
    taken, refused = _with_parts(found, old_rules)
    rules = old_rules | {rule.id: rule for rule in taken}
    became: dict[str, list[str]] = {"added": [], "changed": [], "same": []}
    for rule in taken:
        old = old_rules.get(rule.id)
        new = _counting(rule, rules)
        new = new if old is None else msgspec.structs.replace(new, enabled=new.enabled and old.enabled)
        became["added" if old is None else "same" if old == new else "changed"].append(rule.id)
        rules[rule.id] = new
    declared = {
        name: places for name, places in found.paths.items() if name not in before.paths or places != dotted_paths(name)
    }
    counting = tuple(_counting(rule, rules) for rule in rules.values())
    after = RuleSet(before.version, counting, {**before.paths, **declared})
    added, changed, same = (tuple(names) for names in became.values())
    return MergeResult(after, added, changed, same, (*found.refused, *refused))


def _counting(rule: Rule, rules: dict[str, Rule]) -> Rule:
    """A rule that counts events of others fits what one of them fits; Sigma's say so already."""
    if rule.kind != "yaml" or rule.statistics is None or not rule.statistics.parts:
        return rule
    return msgspec.structs.replace(rule, condition=any_of(*(rules[part].condition for part in rule.statistics.parts)))


def _is_kept_whole(rule: Rule) -> bool:
    """Whether the rule that is read from a store is the one that was put there: not so with half a character."""
    try:
        return bool(msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return False


def _with_parts(found: ImportedRules, rules: dict[str, Rule]) -> tuple[list[Rule], list[Refusal]]:
    """The rules that can be kept and whose parts are there, and why the others are not taken."""
    accepted: list[Rule] = []
    refused: list[Refusal] = []
    for rule in found.rules:
        if _is_kept_whole(rule):
            accepted.append(rule)
        else:
            refused.append(_refusal(found, rule, "The rule has a number or a character that cannot be kept."))
    while True:
        known = rules | {rule.id: rule for rule in accepted}
        wrong = {rule.id: words for rule in accepted if (words := _wrong_parts(rule, known))}
        if not wrong:
            return accepted, refused
        refused += [_refusal(found, rule, wrong[rule.id]) for rule in accepted if rule.id in wrong]
        accepted = [rule for rule in accepted if rule.id not in wrong]


def _refusal(found: ImportedRules, rule: Rule, words: str) -> Refusal:
    path, line = found.places.get(rule.id, ("", None))
    return Refusal(path or ascii(rule.id)[1:-1], words, line)


def _wrong_parts(rule: Rule, known: Mapping[str, Rule]) -> str:
    for part in () if rule.statistics is None else rule.statistics.parts:
        if part not in known:
            return f"There is no rule {part!r} to count.{_near(part, known)}"
        if known[part].statistics is not None:
            return f"The rule {part!r} counts events itself; what it finds cannot be counted."
    return ""


def choose_rules(rule_set: RuleSet, patterns: Sequence[str]) -> list[Rule]:
    """The rules whose ids fit one of the patterns (`*` and `?` as in file names), in the order of the set.

    Raises RULE_NOT_FOUND where a pattern fits none.
    """
    found: dict[str, Rule] = {}
    for pattern in patterns:
        fitting = [rule for rule in rule_set.rules if rule.id == pattern or fnmatchcase(rule.id, pattern)]
        if not fitting:
            raise _not_found(rule_set, pattern)
        found |= {rule.id: rule for rule in fitting}
    return [rule for rule in rule_set.rules if rule.id in found]


def find_rule(rule_set: RuleSet, name: str) -> Rule:
    """The rule of that id, or the only one whose id begins with it. Raises RULE_NOT_FOUND."""
    fitting = [rule for rule in rule_set.rules if rule.id == name]
    fitting = fitting or [rule for rule in rule_set.rules if name and rule.id.startswith(name)]
    if len(fitting) > 1:
        shown = ", ".join(rule.id for rule in fitting[:3])
        raise RuleError("RULE_NOT_FOUND", f"{len(fitting)} rules begin with {name!r}: {shown}.", remedy="Name one.")
    if not fitting:
        raise _not_found(rule_set, name)
    return fitting[0]


def switch_rules(rule_set: RuleSet, names: Collection[str], *, enabled: bool) -> RuleSet:
    """The set with these rules switched on or off."""
    rules = (msgspec.structs.replace(one, enabled=enabled) if one.id in names else one for one in rule_set.rules)
    return RuleSet(rule_set.version, tuple(rules), rule_set.paths)


def remove_rules(rule_set: RuleSet, names: Collection[str]) -> RuleSet:
    """The set without these rules. Raises RULE_REFUSED where another one counts the events of one of them."""
    kept = tuple(rule for rule in rule_set.rules if rule.id not in names)
    for rule in kept:
        for part in rule.statistics.parts if rule.statistics else ():
            if part in names:
                raise RuleError(
                    "RULE_REFUSED",
                    f"The rule {part!r} cannot go: {rule.id!r} counts its events.",
                    remedy="Remove that one, too.",
                )
    return RuleSet(rule_set.version, kept, rule_set.paths)


def _not_found(rule_set: RuleSet, name: str) -> RuleError:
    near = _near(name, [rule.id for rule in rule_set.rules])
    return RuleError("RULE_NOT_FOUND", f"No rule has the id {name[:200]!r}.{near}")


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""
