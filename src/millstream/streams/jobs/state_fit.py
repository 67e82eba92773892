"""Decides which state of a checkpoint a changed query keeps, from descriptions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.streams.errors import JobError
from millstream.streams.plan.state_forms import StateForm

__all__ = [
    "IGNORE_UNCLAIMED",
    "KeptOperator",
    "KeptSource",
    "OperatorFit",
    "PlanState",
    "PlannedOperator",
    "PlannedSource",
    "StateFit",
    "StateRecord",
    "fit_state",
]

IGNORE_UNCLAIMED: Final = "execution.state-recovery.ignore-unclaimed-state"
"""The setting that lets a job drop state which its query has no operator for."""

_FIRST_OPERATOR: Final = 0

_WAYS_OUT = (
    "Go back to the old query, or give the job another name. Or run it once without that operator and with "
    f"SET '{IGNORE_UNCLAIMED}' = 'true', which drops its state; added after that, it begins empty."
)
_DROP_WAYS_OUT = (
    f"SET '{IGNORE_UNCLAIMED}' = 'true' to drop that state, go back to the old query, or give the job another name."
)
_ANEW_WAYS_OUT = "Go back to the old query, give the job another name, or remove the checkpoint, which begins anew."


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """An operator of a query: what it keeps, the sinks that its rows go to, and the word for it in names."""

    form: StateForm
    sinks: tuple[str, ...]
    word: str = "operator"


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A table that a query reads; `of` says in words what it is, so that another topic of one name is told."""

    name: str
    of: str


@dataclass(frozen=True, slots=True)
class PlanState:
    """All of a query that a checkpoint knows: its operators in the order in which they run, its tables, its sinks.

    With `has_script_rows` rows that stand in the script are read as a table.
    """

    operators: tuple[PlannedOperator, ...] = ()
    sources: tuple[PlannedSource, ...] = ()
    sinks: tuple[str, ...] = ()
    has_script_rows: bool = False


@dataclass(frozen=True, slots=True)
class KeptOperator:
    """An operator of a checkpoint; `number` stands for it in event time, `name` is its directory, for life."""

    form: StateForm
    sinks: tuple[str, ...]
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class KeptSource:
    """A table of a checkpoint; `number` stands for it in event time, for life."""

    name: str
    of: str
    number: int


@dataclass(frozen=True, slots=True)
class StateRecord:
    """What a checkpoint holds. The next numbers grow with each operator and table that is added, and never go back."""

    operators: tuple[KeptOperator, ...] = ()
    sources: tuple[KeptSource, ...] = ()
    sinks: tuple[str, ...] = ()
    next_operator: int = _FIRST_OPERATOR
    next_source: int = 0
    has_script_rows: bool = False

    @classmethod
    def fresh(cls, plan: PlanState) -> StateRecord:
        """The table of a query that begins, and of one of which only the order of its operators is known."""
        return cls().follow(plan, fit_state(cls(), plan))

    def follow(self, plan: PlanState, fit: StateFit) -> StateRecord:
        """The table once the query is `plan`; operators in its order."""
        operators, next_operator = [], self.next_operator
        for one in fit.operators:
            if one.planned is None:
                continue
            if one.kept is not None:
                operators.append(replace(one.kept, form=one.planned.form, sinks=one.planned.sinks))
            else:
                name = f"{next_operator}-{one.planned.word}"
                operators.append(KeptOperator(one.planned.form, one.planned.sinks, next_operator, name))
                next_operator += 1
        known, sources, next_source = {of.name: of for of in self.sources}, [], self.next_source
        for source in plan.sources:
            if source.name in known:
                sources.append(replace(known[source.name], of=source.of))
            else:
                sources.append(KeptSource(source.name, source.of, next_source))
                next_source += 1
        return StateRecord(
            tuple(operators), tuple(sources), plan.sinks, next_operator, next_source, plan.has_script_rows
        )


@dataclass(frozen=True, slots=True)
class OperatorFit:
    """One operator before (`kept`) and after a change; with both and `in_way` its state has another form."""

    kept: KeptOperator | None
    planned: PlannedOperator | None
    in_way: bool = False

    def __str__(self) -> str:
        if self.planned is None:
            assert self.kept is not None
            return f"dropped: {self.kept.form}"
        if self.kept is None:
            return f"new, begins empty: {self.planned.form}"
        if self.in_way:
            return f"in the way: the state is of {self.kept.form}; the query needs {self.planned.form}"
        chosen = ""
        if self.kept.form.conditions != self.planned.form.conditions:
            old = " AND ".join(self.kept.form.conditions) or "all rows"
            chosen = f" (rows before were chosen by the old condition: {old})"
        return f"kept: {self.planned.form}{chosen}"


@dataclass(frozen=True, slots=True)
class StateFit:
    """The answer: what becomes of operators (in the plan's order, then those that are dropped), tables and sinks."""

    operators: tuple[OperatorFit, ...] = ()
    kept_sources: tuple[str, ...] = ()
    new_sources: tuple[str, ...] = ()
    dropped_sources: tuple[str, ...] = ()
    other_sources: tuple[tuple[str, str, str], ...] = ()
    kept_sinks: tuple[str, ...] = ()
    new_sinks: tuple[str, ...] = ()
    dropped_sinks: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = field(default=())

    @property
    def dropped(self) -> list[KeptOperator]:
        """The operators whose state nobody takes over."""
        return [one.kept for one in self.operators if one.planned is None and one.kept is not None]

    def lines(self) -> list[str]:
        """The answer for a user, a line for each operator, table and sink that is not as it was."""
        return [
            *(f"Operator {one}" for one in self.operators),
            *(f"Table {name}: kept, goes on where it stands" for name in self.kept_sources),
            *(f"Table {name}: new, begins where its options say" for name in self.new_sources),
            *(f"Table {name}: dropped, its position is forgotten" for name in self.dropped_sources),
            *(f"Table {name}: in the way, it was {old} and is {new}" for name, old, new in self.other_sources),
            *(f"Sink {name}: kept" for name in self.kept_sinks),
            *(f"Sink {name}: new, gets rows from here on" for name in self.new_sinks),
            *(f"Sink {name}: gets no more rows" for name in self.dropped_sinks),
            *self.obstacles,
        ]

    def check(self, place: str, *, ignores_unclaimed: bool, words: str = "") -> None:
        """Raise JobError CHECKPOINT_MISMATCH unless the query may go on from `place`; `words` say what changed."""
        begin = f"{place} belongs to another query."
        if self.obstacles:
            raise JobError("CHECKPOINT_MISMATCH", _text(begin, self.obstacles, words), remedy=_ANEW_WAYS_OUT)
        moved = [f"The table {name} was {old} and is {new}." for name, old, new in self.other_sources]
        if moved:
            raise JobError("CHECKPOINT_MISMATCH", _text(begin, moved, words), remedy=_ANEW_WAYS_OUT)
        blocked = [_in_way(one) for one in self.operators if one.in_way]
        if blocked:
            raise JobError("CHECKPOINT_MISMATCH", _text(begin, blocked, words), remedy=_WAYS_OUT)
        if self.dropped and not ignores_unclaimed:
            lost = [
                f"No operator takes over the state of {one.form} (sink {_names(one.sinks)})." for one in self.dropped
            ]
            raise JobError("CHECKPOINT_MISMATCH", _text(begin, lost, words), remedy=_DROP_WAYS_OUT)


def _in_way(one: OperatorFit) -> str:
    assert one.kept is not None
    assert one.planned is not None
    return (
        f"The state of the operator {one.kept.name} (sink {_names(one.kept.sinks)}) has another form: it holds "
        f"{one.kept.form}; the query needs {one.planned.form}."
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _text(begin: str, reasons: Iterable[str], words: str) -> str:
    return " ".join(part for part in (begin, *reasons, words) if part)


def fit_state(table: StateRecord, plan: PlanState) -> StateFit:
    """What becomes of everything in `table` when the query is `plan`.

    Operators with one id are distinguished by their conditions, then by their sinks, then by their order.
    """
    waiting = list(table.operators)
    found: dict[int, OperatorFit] = {}
    for is_like in (*_EQUAL, *_SIMILAR):
        for place, planned in enumerate(plan.operators):
            if place in found:
                continue
            kept = next((one for one in waiting if is_like(one, planned)), None)
            if kept is not None:
                waiting.remove(kept)
                found[place] = OperatorFit(kept, planned, in_way=kept.form.id != planned.form.id)
    operators = [found.get(place) or OperatorFit(None, planned) for place, planned in enumerate(plan.operators)]
    before = {source.name: source.of for source in table.sources}
    now = {source.name: source.of for source in plan.sources}
    obstacles = []
    if table.has_script_rows != plan.has_script_rows or (table.has_script_rows and list(before) != list(now)):
        obstacles.append("It reads rows that stand in the script, which cannot come or go.")
    return StateFit(
        (*operators, *(OperatorFit(one, None) for one in waiting)),
        tuple(name for name in now if name in before and before[name] == now[name]),
        tuple(name for name in now if name not in before),
        tuple(name for name in before if name not in now),
        tuple((name, before[name], now[name]) for name in now if name in before and before[name] != now[name]),
        tuple(name for name in dict.fromkeys(plan.sinks) if name in table.sinks),
        tuple(name for name in dict.fromkeys(plan.sinks) if name not in table.sinks),
        tuple(name for name in dict.fromkeys(table.sinks) if name not in plan.sinks),
        tuple(obstacles),
    )


_IsLike = Callable[[KeptOperator, PlannedOperator], bool]


def _is_same(kept: KeptOperator, planned: PlannedOperator) -> bool:
    return kept.form.id == planned.form.id


def _chooses_alike(kept: KeptOperator, planned: PlannedOperator) -> bool:
    return kept.form.conditions == planned.form.conditions


def _goes_alike(kept: KeptOperator, planned: PlannedOperator) -> bool:
    return bool(set(kept.sinks) & set(planned.sinks))


def _is_alike(kept: KeptOperator, planned: PlannedOperator) -> bool:
    """Whether a user would take them for one operator that was changed."""
    return kept.form.kind == planned.form.kind and bool(set(kept.form.tables) & set(planned.form.tables))


_EQUAL: tuple[_IsLike, ...] = (
    lambda kept, planned: _is_same(kept, planned) and _chooses_alike(kept, planned) and _goes_alike(kept, planned),
    lambda kept, planned: _is_same(kept, planned) and _chooses_alike(kept, planned),
    lambda kept, planned: _is_same(kept, planned) and _goes_alike(kept, planned),
    _is_same,
)
"""From the surest sign that two operators are one to the last that is enough."""

_SIMILAR: tuple[_IsLike, ...] = (
    lambda kept, planned: (
        _is_alike(kept, planned) and _goes_alike(kept, planned) and kept.form.keys == planned.form.keys
    ),
    lambda kept, planned: _is_alike(kept, planned) and _goes_alike(kept, planned),
)
"""The same of operators whose state has another form: its kind, tables and sink are those of one that was changed."""
