"""Statistics of a rule stage: its composition for EXPLAIN, and its work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from millstream.streams.rules.conditions import OF_WHOLE_EVENTS, Condition, Predicate, predicates_of
from millstream.streams.rules.engines.literals import LiteralEngine
from millstream.streams.rules.stage.condition_compiler import ConditionCompiler
from millstream.streams.rules.stage.fingerprints import CacheBudget
from millstream.streams.rules.stage.groups import FieldGroup

__all__ = [
    "GroupExplanation",
    "GroupStatistics",
    "QuarantinedRule",
    "StageExplanation",
    "StageStatistics",
    "explain_stage",
    "statistics_by_field",
]


class QuarantinedRule(msgspec.Struct, frozen=True):
    """A rule that is judged no more, why, and the event at which that happened, cut; blank where there was none."""

    rule_id: str
    reason: str
    evidence: str = ""


class GroupExplanation(msgspec.Struct, frozen=True):
    """The atoms about one field: how many there are, how many of them several rules ask, and what finds them."""

    field: str
    atoms: int
    shared_atoms: int
    engines: dict[str, int]
    """Atoms by engine."""
    database_bytes: int
    """Size of hyperscan's databases, were all atoms of the field looked for."""

    def __str__(self) -> str:
        engines = ", ".join(f"{count} by {name}" for name, count in self.engines.items())
        size = f", databases of {self.database_bytes} bytes" if self.database_bytes else ""
        return f"{self.field or '(whole event)'}: {self.atoms} atoms, {self.shared_atoms} shared; {engines}{size}"


class StageExplanation(msgspec.Struct, frozen=True):
    """How a stage would judge: the fields that part events into classes, and the groups of atoms by field."""

    rules: int
    class_fields: tuple[str, ...]
    groups: tuple[GroupExplanation, ...]

    def __str__(self) -> str:
        atoms, shared = sum(one.atoms for one in self.groups), sum(one.shared_atoms for one in self.groups)
        classes = ", ".join(self.class_fields) or "none"
        head = f"{self.rules} rules, {atoms} atoms, {shared} shared by several rules; classes by: {classes}"
        return "\n".join([head, *(f"  {group}" for group in self.groups)])


class GroupStatistics(msgspec.Struct, frozen=True):
    """What was looked for in one field, in all classes of events together, and how often a value was known already."""

    field: str
    key_atoms: int
    engines: dict[str, int]
    database_bytes: int
    cache_hits: int
    cache_misses: int
    caches_on: int
    """Of as many groups as have this field."""
    groups: int


class StageStatistics(msgspec.Struct, frozen=True):
    """What a stage did since it was made."""

    events: int
    rules: int
    atoms: int
    shared_atoms: int
    """Different atoms, and those of them that several rules ask."""
    classes: int
    """Classes of events that were seen."""
    groups: tuple[GroupStatistics, ...]
    cache_bytes: int
    hits: dict[str, int]
    """Events by the id of the rule that held for them; every rule that is judged is there."""
    found: dict[str, int]
    """Events by atom that was looked for and found in them."""
    quarantined: tuple[QuarantinedRule, ...]


def explain_stage(
    formulas: Mapping[int, Condition], class_fields: tuple[str, ...], questions: ConditionCompiler
) -> StageExplanation:
    """How a stage of these positive formulas would judge. Compiles all their atoms: takes seconds for thousands."""
    uses: Counter[Predicate] = Counter()
    for formula in formulas.values():
        uses.update(set(predicates_of(formula)))
    fields: dict[str, list[Predicate]] = defaultdict(list)
    for predicate in uses:
        fields[predicate.field].append(predicate)
    groups = []
    for field in sorted(fields):
        atoms = sorted(fields[field], key=str)
        alone = [predicate for predicate in atoms if predicate.op in OF_WHOLE_EVENTS]
        group = FieldGroup(
            field,
            [questions.of(predicate) for predicate in atoms if predicate not in alone],
            questions.watch,
            CacheBudget(0),
        )
        engines: Counter[str] = Counter({"row by row": len(alone)} if alone else {})
        for engine in group.engines:
            if isinstance(engine, LiteralEngine):
                engine.compile()
            engines[engine.name] += engine.atoms
        size_bytes = sum(engine.database_bytes for engine in group.engines)
        shared = sum(uses[predicate] > 1 for predicate in atoms)
        groups.append(GroupExplanation(field, len(atoms), shared, dict(engines), size_bytes))
    return StageExplanation(len(formulas), class_fields, tuple(groups))


def statistics_by_field(groups: Iterable[FieldGroup]) -> tuple[GroupStatistics, ...]:
    """The statistics of groups by field."""
    fields: dict[str, list[FieldGroup]] = defaultdict(list)
    for group in groups:
        fields[group.field].append(group)
    return tuple(_of_field(field, fields[field]) for field in sorted(fields))


def _of_field(field: str, groups: list[FieldGroup]) -> GroupStatistics:
    engines: Counter[str] = Counter()
    for group in groups:
        for engine in group.engines:
            engines[engine.name] += engine.atoms
    return GroupStatistics(
        field=field,
        key_atoms=len({predicate for group in groups for predicate in group.atoms}),
        engines=dict(engines),
        database_bytes=sum(engine.database_bytes for group in groups for engine in group.engines),
        cache_hits=sum(group.cache.hits for group in groups),
        cache_misses=sum(group.cache.misses for group in groups),
        caches_on=sum(group.cache.is_on for group in groups),
        groups=len(groups),
    )
