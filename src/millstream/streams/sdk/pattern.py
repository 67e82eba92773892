"""Patterns of events, built part by part; they become MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.streams.errors import SqlError
from millstream.streams.sdk.sql_text import Duration, interval, listed, quoted

__all__ = ["Pattern"]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: `gap` is what may stand before it, `never` a condition that no row there may fulfil."""

    name: str
    condition: str | None
    gap: bool = False
    never: str | None = None
    quantifier: str = ""


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
        return self._with(name, condition, gap=False)

    def followed_by(self, name: str, condition: str | None = None) -> Pattern:
        """The next event behind the one before for which the condition is true; others may lie between."""
        return self._with(name, condition, gap=True)

    def not_next(self, condition: str) -> Pattern:
        """The event right behind the one before must not fulfil the condition; a `next` says what it must."""
        return replace(self, refused=(False, condition))

    def not_followed_by(self, condition: str) -> Pattern:
        """No event up to the next part, which is a `followed_by`, may fulfil the condition."""
        return replace(self, refused=(True, condition))

    def times(self, least: int, most: int | None = None) -> Pattern:
        """The last part that many times in a row: `least` times, or `least` to `most`."""
        return self._repeated(f"{{{least}}}" if most is None else f"{{{least},{most}}}")

    def one_or_more(self) -> Pattern:
        """The last part as often as it comes in a row, at least once."""
        return self._repeated("+")

    def optional(self) -> Pattern:
        """The last part, or none of it."""
        return self._repeated("?")

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
            if part.gap:
                words.append(f"{quoted(_gap(part))}*?")
            words.append(f"{quoted(part.name)}{part.quantifier}")
        return f"({' '.join(words)})"

    def query(self, keys: tuple[str, ...], time: str, measures: dict[str, str], skip: str) -> str:
        """The query that finds the pattern in the rows of the table `stream`."""
        defines = [f"{quoted(part.name)} AS {part.condition}" for part in self.parts if part.condition is not None]
        gaps = [f"{quoted(_gap(part))} AS NOT ({part.never})" for part in self.parts if part.never is not None]
        partition = f"PARTITION BY {listed(keys)} " if keys else ""
        shown = ", ".join(f"{value} AS {quoted(name)}" for name, value in measures.items())
        within = f" WITHIN {interval(self.limit)}" if self.limit is not None else ""
        conditions = ", ".join([*defines, *gaps]) or _anything(self)
        return (
            f"SELECT * FROM stream MATCH_RECOGNIZE ({partition}ORDER BY {quoted(time)} MEASURES {shown}"
            f" AFTER MATCH SKIP {skip} PATTERN {self.text}{within} DEFINE {conditions})"
        )

    def _with(self, name: str, condition: str | None, *, gap: bool) -> Pattern:
        if any(part.name == name for part in self.parts):
            raise SqlError("SQL_SYNTAX", f'The pattern has two parts "{name}".', remedy="Give one another name.")
        never = None
        if self.refused is not None:
            between, refused = self.refused
            if between != gap:
                wanted = "followed_by" if between else "next"
                message = f"Behind not_{'followed_by' if between else 'next'} comes {wanted}."
                raise SqlError("SQL_UNSUPPORTED", message, remedy=f"Write {wanted}(...) behind it.")
            never = refused if between else None
            if not between:
                condition = f"({condition or 'TRUE'}) AND NOT ({refused})"
        return replace(self, parts=(*self.parts, _Part(name, condition, gap, never)), refused=None)

    def _repeated(self, quantifier: str) -> Pattern:
        return replace(self, parts=(*self.parts[:-1], replace(self.parts[-1], quantifier=quantifier)))


def _gap(part: _Part) -> str:
    """The variable of the rows before a part."""
    return f"before_{part.name}"


def _anything(pattern: Pattern) -> str:
    """DEFINE needs one definition."""
    return f"{quoted(pattern.parts[0].name)} AS TRUE"
