"""Rules that are left out of an import: there are no events of their log sources, or nothing tells which they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from millstream.streams.rule_formats.sigma.filters import RuleFilter
from millstream.streams.rule_formats.sigma.log_sources import NoEvents, label_of
from millstream.streams.rules.imported import SourceNote

__all__ = ["LeftOut"]

_CORRELATION: Final = "correlation"
"""Stands for the log source of what has none."""


class LeftOut:
    """The rules by log source, and by what others call them; a correlation of one is left out as well."""

    def __init__(self) -> None:
        self.names: dict[str, NoEvents] = {}
        """Why each is left out, by id and by name."""
        self._sources: list[Mapping[Any, Any]] = []
        self._counts: Counter[tuple[str, bool]] = Counter()

    def add(self, told: Mapping[Any, Any], why: NoEvents) -> None:
        """Take a rule's document in."""
        self.names.update((name, why) for name in (told.get("id"), told.get("name")) if isinstance(name, str))
        source = told.get("logsource")
        if isinstance(source, Mapping):
            self._sources.append(source)
            self._counts[label_of(source), why.unmapped] += 1
        else:
            self._counts[_CORRELATION, why.unmapped] += 1

    def any_of(self, one: RuleFilter) -> bool:
        """Whether a filter would be for one of the rules."""
        return any(one.fits(source) for source in self._sources)

    def notes(self) -> Iterator[SourceNote]:
        """How many there are of each log source."""
        for (label, unmapped), count in sorted(self._counts.items()):
            yield SourceNote(label, count, "", unmapped)
