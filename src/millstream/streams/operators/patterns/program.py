"""Compiles a row pattern to states: the possible variables of the next row, preferred first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from millstream.streams.errors import JobError
from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Variable

__all__ = ["MAX_STATES", "ROWS_FIT", "Program", "program_of"]

MAX_STATES: Final = 1_000
"""States of a pattern at most: a variable counts as often as the numbers of its quantifiers repeat it."""

# The state in which the rows so far are a match.
ROWS_FIT: Final = -1


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
    """One instruction: a row of `variable`, then `ways[0]`; without one `ways`, the preferred first.

    A loop is entered, its rounds are opened and closed: then `loop` names it.
    """

    variable: str | None = None
    ways: list[int] = field(default_factory=list)
    does: Literal["enter", "open", "close"] | None = None
    loop: int = 0


def program_of(pattern: Pattern) -> Program:
    """The states of a pattern. Raises JobError JOB_FAILED for one of more than MAX_STATES."""
    steps: list[_Step] = []
    start = _steps(pattern, steps, _add_step(steps, _Step()))
    rows = [place for place, step in enumerate(steps) if step.variable is not None]
    numbers = {place: number for number, place in enumerate(rows)}
    variables = tuple(variable for step in steps if (variable := step.variable) is not None)
    then = tuple(_find_reachable(steps, steps[place].ways[0], numbers) for place in rows)
    return Program(variables, _find_reachable(steps, start, numbers), then)


def _add_step(steps: list[_Step], step: _Step) -> int:
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
            return _add_step(steps, _Step(name, [after]))
        case Sequence(parts=parts):
            for part in reversed(parts):
                after = _steps(part, steps, after)
            return after
        case Alternation(parts=parts):
            return _add_step(steps, _Step(None, [_steps(part, steps, after) for part in parts]))
        case Quantified():
            return _add_repetition(pattern, steps, after)


def _add_repetition(pattern: Quantified, steps: list[_Step], after: int) -> int:
    part = pattern.part
    if pattern.most is None:
        loop = _add_step(steps, _Step())
        close = _add_step(steps, _Step(None, [loop], "close", loop))
        once = _add_step(steps, _Step(None, [_steps(part, steps, close)], "open", loop))
        steps[loop].ways = [once, after] if pattern.greedy else [after, once]
        after = _add_step(steps, _Step(None, [loop], "enter", loop))
    else:
        end = after
        for _ in range(pattern.most - pattern.least):
            once = _steps(part, steps, after)
            after = _add_step(steps, _Step(None, [once, end] if pattern.greedy else [end, once]))
    for _ in range(pattern.least):
        after = _steps(part, steps, after)
    return after


def _find_reachable(steps: list[_Step], start: int, numbers: dict[int, int]) -> tuple[int, ...]:
    """The states that `start` leads to without a row. A round of a loop that closes without a row leads nowhere."""
    found: dict[int, None] = {}
    nothing: frozenset[int] = frozenset()
    # Where a way has come to, and the loops of which it has opened a round without a row.
    waiting = [(start, nothing)]
    seen: set[tuple[int, frozenset[int]]] = set()
    while waiting:
        place, opened = waiting.pop()
        if (place, opened) in seen:
            continue
        seen.add((place, opened))
        step = steps[place]
        if step.variable is not None:
            found[numbers[place]] = None
        elif not step.ways:
            return (*found, ROWS_FIT)
        elif step.does != "close" or step.loop not in opened:
            if step.does is not None:
                opened = opened | {step.loop} if step.does == "open" else opened - {step.loop}
            waiting += [(way, opened) for way in reversed(step.ways)]
    return tuple(found)
