"""Searches a pattern in the rows of one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from millstream.streams.errors import JobError
from millstream.streams.operators.aggregates.catalogue import AggregateSpec, accumulator_of
from millstream.streams.operators.operator import Row
from millstream.streams.operators.patterns.navigation import Formula, Matched, reader_of, value_of
from millstream.streams.operators.patterns.program import ROWS_FIT, Program
from millstream.streams.plan.patterns import Skip, SkipMode

__all__ = ["MAX_WAYS", "PartialMatch", "PatternSpec", "Search", "Searcher"]

MAX_WAYS: Final = 10_000
"""Ways in which rows from one first row on may match a pattern, at most."""


@dataclass(frozen=True, slots=True)
class PatternSpec:
    """A pattern with its definitions: formulas, or the place of a column that tells it for a row alone.

    A variable in `unless` fits no row that would fit the other one in its place.
    """

    program: Program
    defines: tuple[tuple[str, Formula | int], ...]
    skip: Skip = field(default_factory=Skip)
    within_us: int | None = None
    unless: tuple[tuple[str, str], ...] = ()


class PartialMatch:
    """What may become a match from row `number` on.

    `ways` are states with the rows that led there, the preferred ones first. `best` is the match that stands if none
    of them leads to one: without ways it is decided.
    """

    __slots__ = ("best", "number", "time_us", "ways")

    def __init__(
        self, number: int, time_us: int, ways: Sequence[tuple[int, Matched | None]], best: Matched | None = None
    ) -> None:
        self.number = number
        self.time_us = time_us
        self.ways = ways
        self.best = best


@dataclass(slots=True)
class Search:
    """A partition: rows by number, the number of the next to come and of the next to look at, and what has begun."""

    rows: dict[int, Row]
    coming: int
    looking: int
    partial_matches: list[PartialMatch]


class Searcher:
    """Looks for a pattern in partitions. `ahead` is how many rows behind a row have to be there before it is looked at.

    Where no definition reads other rows of the match, two ways to one state are one.
    """

    def __init__(self, spec: PatternSpec, time_of: Callable[[Row], int], ahead: int) -> None:
        self._program = spec.program
        # A match without rows is none, but what stands behind it is not wanted any more.
        self._first = [(state, None) for state in spec.program.first if state != ROWS_FIT]
        self._skip = spec.skip
        self._within_us = spec.within_us
        self._unless = dict(spec.unless)
        self._time_of = time_of
        self._ahead = ahead
        formulas = [formula for _, formula in spec.defines if isinstance(formula, Formula)]
        read = [one for formula in formulas for one in formula.navigations]
        self._forgetful = all(one.kind in ("here", "prev", "next") for one in read)
        self._summed: dict[tuple[str, AggregateSpec], int] = {}
        for one in read:
            if one.spec is not None:
                self._summed.setdefault((one.variable, one.spec), len(self._summed))
        self._machines = [accumulator_of(spec, changing=False) for _, spec in self._summed]
        self._nothing = tuple(machine.new() for machine in self._machines)
        self._places = {variable: of for variable, of in spec.defines if not isinstance(of, Formula)}
        self._readers = {
            variable: reader_of(of, self._summed) for variable, of in spec.defines if isinstance(of, Formula)
        }
        self._starts = _starts(spec.program, self._places)

    def before_any(self, rows: Sequence[Row]) -> int:
        """How many of the rows, from the first on, begin no match and are read by none, where nothing has begun.

        0 where that is not told by columns alone.
        """
        if self._starts is None or self._ahead:
            return 0
        starts = self._starts
        return next((number for number, row in enumerate(rows) if starts(row)), len(rows))

    def feed(self, search: Search, row: Row) -> list[Matched]:
        """The matches that are sure with one more row."""
        search.rows[search.coming] = row
        search.coming += 1
        found: list[Matched] = []
        while search.looking + self._ahead < search.coming:
            found += self._read_next(search)
        return found

    def finish(self, search: Search) -> list[Matched]:
        """The matches of a partition to which no row comes any more."""
        found: list[Matched] = []
        while search.looking < search.coming:
            found += self._read_next(search)
        for begun in search.partial_matches:
            begun.ways = ()
        return found + self._settle(search)

    def expire(self, search: Search, until_us: int) -> list[Matched]:
        """The matches that are sure since every row to come is later than `until_us`."""
        if self._within_us is None or search.looking < search.coming:
            return []
        for begun in search.partial_matches:
            if until_us - begun.time_us >= self._within_us:
                begun.ways = ()
        return self._settle(search)

    def _read_next(self, search: Search) -> list[Matched]:
        """Look at the next row."""
        number = search.looking
        search.looking += 1
        row = search.rows[number]
        time_us = self._time_of(row)
        for begun in search.partial_matches:
            if begun.ways:
                if self._within_us is not None and time_us - begun.time_us >= self._within_us:
                    begun.ways = ()
                else:
                    self._step(begun, number, search.rows)
        if self._starts is None or self._starts(row):
            first = PartialMatch(number, time_us, self._first)
            self._step(first, number, search.rows)
            if first.ways or first.best is not None:
                search.partial_matches.append(first)
        return self._settle(search) if search.partial_matches else []

    def _step(self, begun: PartialMatch, number: int, rows: dict[int, Row]) -> None:
        program = self._program
        ways: list[tuple[int, Matched | None]] = []
        seen: set[int] = set()
        for state, before in begun.ways:
            matched = self._match_if_fit(program.variables[state], number, before, rows)
            if matched is None:
                continue
            for then in program.then[state]:
                if then == ROWS_FIT:
                    begun.best = matched
                    begun.ways = ways
                    return
                if self._forgetful:
                    if then in seen:
                        continue
                    seen.add(then)
                ways.append((then, matched))
        if len(ways) > MAX_WAYS:
            raise JobError(
                "JOB_FAILED",
                f"Rows fit the pattern of MATCH_RECOGNIZE in more than {MAX_WAYS:,} ways at once.",
                remedy="Set WITHIN, or define variables so that a row fits fewer of them.",
            )
        begun.ways = ways

    def _match_if_fit(self, variable: str, number: int, before: Matched | None, rows: dict[int, Row]) -> Matched | None:
        """The match with one more row, if that row fits the variable."""
        other = self._unless.get(variable)
        if other is not None and self._match_if_fit(other, number, before, rows) is not None:
            return None
        place = self._places.get(variable)
        if place is not None and not rows[number][place]:
            return None
        sums = self._nothing if before is None else before.sums
        if self._machines:
            sums = self._add_to_sums(sums, variable, rows[number])
        matched = Matched(variable, number, before, sums)
        reader = self._readers.get(variable)
        return matched if reader is None or reader(matched, rows) else None

    def _add_to_sums(self, sums: tuple[Any, ...], variable: str, row: Row) -> tuple[Any, ...]:
        after = list(sums)
        for place, ((of, spec), machine) in enumerate(zip(self._summed, self._machines, strict=True)):
            if (not of or of == variable) and (value := value_of(spec, row)) is not None:
                after[place] = machine.add(_own(after[place]), (value,))
        return tuple(after)

    def _settle(self, search: Search) -> list[Matched]:
        """The matches that nothing before them can undo, in order; what they skip is forgotten."""
        found: list[Matched] = []
        matches_before = search.partial_matches
        while matches_before and not matches_before[0].ways:
            first = matches_before.pop(0)
            if first.best is not None:
                found.append(first.best)
                next_number = self._next_start(first)
                matches_before[:] = [one for one in matches_before if one.number >= next_number]
        matches_before[:] = [one for one in matches_before if one.ways or one.best is not None]
        return found

    def _next_start(self, begun: PartialMatch) -> int:
        """Where the search goes on. Skipping to a variable without rows, or to where it began, is to the next row."""
        assert begun.best is not None
        match self._skip.mode:
            case SkipMode.PAST_LAST_ROW:
                return begun.best.number + 1
            case SkipMode.TO_NEXT_ROW:
                return begun.number + 1
            case mode:
                numbers = begun.best.numbers(self._skip.variable) or [begun.number]
                return max(numbers[0 if mode is SkipMode.TO_FIRST else -1], begun.number + 1)


def _starts(program: Program, places: Mapping[str, int]) -> Callable[[Row], Any] | None:
    """What is true of rows that may be the first of a match; None where a formula, or nothing, says so."""
    variables = {program.variables[state] for state in program.first if state != ROWS_FIT}
    if not variables <= set(places):
        return None
    found = sorted({places[variable] for variable in variables})
    if len(found) == 1:
        return itemgetter(found[0])
    return lambda row: any(row[place] for place in found)


def _own(state: Any) -> Any:
    """The state for a machine to change in place, where it can be changed at all."""
    if isinstance(state, list):
        return [_own(one) for one in state]
    if isinstance(state, tuple):
        return tuple(_own(one) for one in state)
    if isinstance(state, dict):
        return {key: _own(one) for key, one in state.items()}
    return state
