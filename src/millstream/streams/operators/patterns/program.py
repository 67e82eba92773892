"""A row pattern as states: which variables a row may be next, the preferred one first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.streams.errors import JobError
from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Variable

__all__ = ["MAX_STATES", "ROWS_FIT", "Program", "program_of"]

MAX_STATES: Final = 1_000
"""States of a pattern at most: a variable counts as often as the numbers of its quantifiers repeat it."""

ROWS_FIT: Final = -1
"""The state in which the rows so far are a match."""


@dataclass(frozen=True, slots=True)
class Program:
    """`variables` tells for each state what the next row has to be.

    `first` are the states before any row and `then` those behind a row that fitted, the preferred ones first; what
    stands behind ROWS_FIT is never wanted.
    """

    variables: tuple[str, ...]
    first: tuple[int, ...]
    then: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Step:
    """One instruction: a row of `variable`, then `ways[0]`; without one `ways`, the preferred first."""

    variable: str | None = None
    ways: list[int] = field(default_factory=list)


def program_of(pattern: Pattern) -> Program:
    """The states of a pattern. Raises JobError JOB_FAILED for one of more than MAX_STATES."""
    steps: list[_Step] = []
    start = _steps(pattern, steps, _added(steps, _Step()))
    rows = [place for place, step in enumerate(steps) if step.variable is not None]
    numbers = {place: number for number, place in enumerate(rows)}
    variables = tuple(variable for step in steps if (variable := step.variable) is not None)
    then = tuple(_reached(steps, steps[place].ways[0], numbers) for place in rows)
    return Program(variables, _reached(steps, start, numbers), then)


def _added(steps: list[_Step], step: _Step) -> int:
    if len(steps) > 4 * MAX_STATES:
        raise JobError(
            "JOB_FAILED",
            f"The pattern of MATCH_RECOGNIZE has more than {MAX_STATES:,} states.",
            remedy="Use smaller numbers in its quantifiers.",
        )
    steps.append(step)
    return len(steps) - 1


def _steps(pattern: Pattern, steps: list[_Step], after: int) -> int:
    """Where the pattern begins that goes on at `after`."""
    match pattern:
        case Variable(name=name):
            return _added(steps, _Step(name, [after]))
        case Sequence(parts=parts):
            for part in reversed(parts):
                after = _steps(part, steps, after)
            return after
        case Alternation(parts=parts):
            return _added(steps, _Step(None, [_steps(part, steps, after) for part in parts]))
        case Quantified():
            return _repeated(pattern, steps, after)


def _repeated(pattern: Quantified, steps: list[_Step], after: int) -> int:
    part = pattern.part
    if pattern.most is None:
        place = _added(steps, _Step())
        once = _steps(part, steps, place)
        steps[place].ways = [once, after] if pattern.greedy else [after, once]
        after = place
    else:
        end = after
        for _ in range(pattern.most - pattern.least):
            once = _steps(part, steps, after)
            after = _added(steps, _Step(None, [once, end] if pattern.greedy else [end, once]))
    for _ in range(pattern.least):
        after = _steps(part, steps, after)
    return after


def _reached(steps: list[_Step], start: int, numbers: dict[int, int]) -> tuple[int, ...]:
    """The states that `start` leads to without a row; a way that comes back to itself leads nowhere."""
    found: list[int] = []
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        step = steps[place]
        if step.variable is not None:
            found.append(numbers[place])
        elif step.ways:
            waiting += reversed(step.ways)
        else:
            return (*found, ROWS_FIT)
    return tuple(found)
