"""The event pattern builder; patterns become MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from millstream.streams.errors import SqlError
from millstream.streams.plan.nodes import Node, inputs_of, with_inputs
from millstream.streams.plan.patterns import Match
from millstream.streams.sdk.sql_text import Duration, interval, list_columns, quote_name

__all__ = ["Pattern", "with_unless"]


class _Gap(Enum):
    """What may stand before a part: nothing, rows that are not it, or any rows."""

    NONE = "none"
    OTHERS = "others"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern, `least` to `most` times (None: any number); with `apart` others may stand between those.

    `gap` says what may stand before it, and `never` is a condition that no row there may fulfil.
    """

    name: str
    condition: str | None
    gap: _Gap = _Gap.NONE
    never: str | None = None
    least: int = 1
    most: int | None = 1
    apart: bool = False

    @property
    def before(self) -> str:
        """The variable of the rows before it."""
        return f"before_{self.name}"

    @property
    def between(self) -> str:
        """The variable of the rows between its own."""
        return f"between_{self.name}"

    @property
    def text(self) -> str:
        """It in PATTERN, without what stands before it."""
        name = quote_name(self.name)
        if not self.apart:
            return f"{name}{_bounds(self.least, self.most)}"
        more = None if self.most is None else self.most - 1
        again = "" if more == 0 else f" ({quote_name(self.between)}*? {name}){_bounds(max(self.least - 1, 0), more)}"
        return f"({name}{again}){'?' if self.least == 0 else ''}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """An order of events, as in MATCH_RECOGNIZE; conditions are SQL, and may name the columns of earlier parts.

    >>> pattern = Pattern.begin("start", "price > 10").followed_by("peak", "peak.price > start.price").within("1 h")
    >>> pattern.text
    '(`start` `before_peak`*? `peak`)'
    """

    parts: tuple[_Part, ...]
    refused: tuple[bool, str] | None = None
    limit: Duration | None = None

    @classmethod
    def begin(cls, name: str, condition: str | None = None) -> Pattern:
        """The first event; without a condition any one."""
        return cls((_Part(name, condition),))

    def next(self, name: str, condition: str | None = None) -> Pattern:
        """The event right behind the one before."""
        return self._with(name, condition, _Gap.NONE)

    def followed_by(self, name: str, condition: str | None = None) -> Pattern:
        """The next event behind the one before for which the condition is true; others may stand between.

        Flink calls that relaxed contiguity: the first one that fits is the one, also where the rest does not fit then.
        """
        return self._with(name, condition, _Gap.OTHERS)

    def followed_by_any(self, name: str, condition: str | None = None) -> Pattern:
        """The next event for which the condition is true and with which the rest of the pattern fits."""
        return self._with(name, condition, _Gap.ANY)

    def not_next(self, condition: str) -> Pattern:
        """The event right behind the one before must not fulfil the condition; a `next` says what it must."""
        return replace(self, refused=(False, condition))

    def not_followed_by(self, condition: str) -> Pattern:
        """No event up to the next part, which is a `followed_by` or `followed_by_any`, may fulfil the condition."""
        return replace(self, refused=(True, condition))

    def times(self, least: int, most: int | None = None, *, apart: bool = False) -> Pattern:
        """The last part that many times: `least` times, or `least` to `most`.

        They come in a row; with `apart` others may stand between, as with `followed_by`.

        >>> Pattern.begin("bad", "NOT ok").times(3, apart=True).text
        '((`bad` (`between_bad`*? `bad`){2}))'
        """
        return self._repeat(least, least if most is None else most, apart)

    def one_or_more(self, *, apart: bool = False) -> Pattern:
        """The last part as often as it comes, at least once: in a row, or `apart`, with others between."""
        return self._repeat(1, None, apart)

    def optional(self) -> Pattern:
        """The last part, or none of it."""
        return self._repeat(0, 1, apart=False)

    def within(self, duration: Duration) -> Pattern:
        """From the first to the last event it takes less than this; partial matches are forgotten then."""
        return replace(self, limit=duration)

    @property
    def text(self) -> str:
        """What stands behind PATTERN. Raises SqlError for a `not_...` that no part follows as it must."""
        if self.refused is not None:
            message = "A pattern cannot end with what must not come."
            raise SqlError("SQL_UNSUPPORTED", message, remedy="Add next(...) behind it, or followed_by(...).")
        words = []
        for part in self.parts:
            if part.gap is not _Gap.NONE:
                words.append(f"{quote_name(part.before)}*?")
            words.append(part.text)
        return f"({' '.join(words)})"

    @property
    def unless(self) -> tuple[tuple[str, str], ...]:
        """Variables of rows that stand between, each with the part that such a row must not be (`Match.unless`)."""
        before = [(part.before, part.name) for part in self.parts if part.gap is _Gap.OTHERS]
        return (*before, *((part.between, part.name) for part in self.parts if part.apart and part.most != 1))

    def query(self, keys: tuple[str, ...], time: str, measures: dict[str, str], skip: str) -> str:
        """The query that finds the pattern in the rows of the table `stream`."""
        defines = [f"{quote_name(part.name)} AS {part.condition}" for part in self.parts if part.condition is not None]
        gaps = [f"{quote_name(part.before)} AS NOT ({part.never})" for part in self.parts if part.never is not None]
        partition = f"PARTITION BY {list_columns(keys)} " if keys else ""
        shown = ", ".join(f"{value} AS {quote_name(name)}" for name, value in measures.items())
        within = f" WITHIN {interval(self.limit)}" if self.limit is not None else ""
        conditions = ", ".join([*defines, *gaps]) or _anything(self)
        return (
            f"SELECT * FROM stream MATCH_RECOGNIZE ({partition}ORDER BY {quote_name(time)} MEASURES {shown}"
            f" AFTER MATCH SKIP {skip} PATTERN {self.text}{within} DEFINE {conditions})"
        )

    def _with(self, name: str, condition: str | None, gap: _Gap) -> Pattern:
        if any(part.name == name for part in self.parts):
            raise SqlError("SQL_SYNTAX", f'The pattern has two parts "{name}".', remedy="Give one another name.")
        never = None
        if self.refused is not None:
            between, refused = self.refused
            if between != (gap is not _Gap.NONE):
                wanted = "followed_by" if between else "next"
                message = f"Behind not_{'followed_by' if between else 'next'} comes {wanted}."
                raise SqlError("SQL_UNSUPPORTED", message, remedy=f"Write {wanted}(...) behind it.")
            never = refused if between else None
            if not between:
                condition = f"({condition or 'TRUE'}) AND NOT ({refused})"
        return replace(self, parts=(*self.parts, _Part(name, condition, gap, never)), refused=None)

    def _repeat(self, least: int, most: int | None, apart: bool) -> Pattern:
        last = replace(self.parts[-1], least=least, most=most, apart=apart)
        return replace(self, parts=(*self.parts[:-1], last))


def with_unless(node: Node, unless: tuple[tuple[str, str], ...]) -> Node:
    """The plan of `Pattern.query` in which rows that stand between two parts are none of the second one's."""
    if isinstance(node, Match):
        return replace(node, unless=unless)
    return with_inputs(node, tuple(with_unless(below, unless) for below in inputs_of(node)[:1]))


def _bounds(least: int, most: int | None) -> str:
    """The quantifier of PATTERN."""
    if most is None:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    if least == most:
        return "" if least == 1 else f"{{{least}}}"
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _anything(pattern: Pattern) -> str:
    """DEFINE needs one definition."""
    return f"{quote_name(pattern.parts[0].name)} AS TRUE"
