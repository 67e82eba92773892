"""Flink's rules for patterns, checked before a job starts: empty, endless or impossible patterns."""

from __future__ import annotations

from millstream.streams.plan.patterns import Alternation, Pattern, Quantified, Sequence, Skip, SkipMode, Variable
from millstream.streams.sql.syntax.script import Script, Span

__all__ = ["check_pattern", "check_skip"]


def check_pattern(pattern: Pattern, script: Script, span: Span) -> None:
    """Raise SqlError for a pattern that can match no rows, or whose end is not known before another row comes."""
    if _least_rows(pattern) == 0:
        message = f"The pattern {pattern} can match no row at all."
        raise script.error("SQL_UNSUPPORTED", message, span, remedy="Give it a variable that is not optional.")
    last = _greedy_end(pattern)
    if last is not None:
        message = f"The pattern ends with {last}, which takes as many rows as it can, so no match would ever end."
        remedy = f"End with a variable of one row, or write {last}?, which takes as few as it can."
        raise script.error("SQL_UNSUPPORTED", message, span, remedy=remedy)


def check_skip(skip: Skip, pattern: Pattern, script: Script, span: Span) -> None:
    """Raise SqlError for a search that would go on at the first row of the match, and so find the same for ever."""
    starts = _first_variables(pattern)
    alone = skip.mode is SkipMode.TO_LAST and _most_rows(pattern, skip.variable) == 1
    loops = skip.mode is SkipMode.TO_FIRST or alone
    if loops and skip.variable in starts:
        message = f"The search would go on at the first row of the match, where {skip.variable} is, and never end."
        raise script.error("SQL_UNSUPPORTED", message, span, remedy="Use SKIP TO NEXT ROW or SKIP PAST LAST ROW.")


def _least_rows(pattern: Pattern) -> int:
    match pattern:
        case Variable():
            return 1
        case Sequence(parts=parts):
            return sum(map(_least_rows, parts))
        case Alternation(parts=parts):
            return min(map(_least_rows, parts))
        case Quantified(part=part, least=least):
            return least * _least_rows(part)


def _most_rows(pattern: Pattern, variable: str) -> int:
    """Rows of a variable in one match, at most; 2 stands for any more."""
    match pattern:
        case Variable(name=name):
            return int(name == variable)
        case Sequence(parts=parts):
            return min(2, sum(_most_rows(part, variable) for part in parts))
        case Alternation(parts=parts):
            return max(_most_rows(part, variable) for part in parts)
        case Quantified(part=part, most=most):
            return min(2, (2 if most is None else most) * _most_rows(part, variable))


def _first_variables(pattern: Pattern) -> frozenset[str]:
    """The variables that the first row of a match can fit."""
    match pattern:
        case Variable(name=name):
            return frozenset((name,))
        case Sequence(parts=parts):
            found: frozenset[str] = frozenset()
            for part in parts:
                found |= _first_variables(part)
                if _least_rows(part) > 0:
                    break
            return found
        case Alternation(parts=parts):
            return frozenset[str]().union(*map(_first_variables, parts))
        case Quantified(part=part):
            return _first_variables(part)


def _greedy_end(pattern: Pattern) -> Pattern | None:
    """The last part of the pattern if it takes a varying number of rows, as many as it can. A single ? is none."""
    match pattern:
        case Variable():
            return None
        case Sequence(parts=parts):
            return _greedy_end(parts[-1])
        case Alternation(parts=parts):
            return next((found for part in parts if (found := _greedy_end(part)) is not None), None)
        case Quantified(part=part, least=least, most=most, greedy=greedy):
            varies = greedy and least != most and (least, most) != (0, 1)
            return pattern if varies else _greedy_end(part)
