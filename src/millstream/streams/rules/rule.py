"""A rule, and a rule set that evaluates one stream."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

import msgspec

from millstream.streams.rules.conditions import Condition

__all__ = ["MAX_RULES", "Combination", "Measure", "MeasureKind", "Rule", "RuleKind", "RuleSet", "RuleStatistics"]

MAX_RULES: Final = 100_000
"""Rules of one set, at most."""

RuleKind = str
"""The form in which a rule was written: `sigma`, `yaml` or `sql`."""

Path = tuple[str, ...]
"""Keys from an event's root down to a value."""


class MeasureKind(StrEnum):
    """What a statistical rule counts in a window."""

    EVENTS = "events"
    VALUES = "values"
    """Different values of a field."""
    PARTS = "parts"
    """Different parts, in any order: how many of `RuleStatistics.parts` had an event."""
    SEQUENCE = "sequence"
    """Parts that followed each other in the order of `RuleStatistics.parts`."""
    COMBINATION = "combination"
    """Parts as well; which of them had an event must be one of the sets of `RuleStatistics.combination`."""
    SUM = "sum"
    """The sum of a field's numbers, as this and the next four are of what is a number or a text that spells one."""
    AVERAGE = "average"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    PERCENTILE = "percentile"
    """The number below which `Measure.percent` of all lie, between the closest two in proportion."""

    @property
    def is_number(self) -> bool:
        """Whether it is any number, and no count of something."""
        return self in _NUMBERS


_NUMBERS: Final = frozenset(
    (MeasureKind.SUM, MeasureKind.AVERAGE, MeasureKind.MINIMUM, MeasureKind.MAXIMUM, MeasureKind.PERCENTILE)
)

_SLIDING: Final = frozenset(
    (
        MeasureKind.EVENTS,
        MeasureKind.VALUES,
        MeasureKind.PARTS,
        MeasureKind.SUM,
        MeasureKind.AVERAGE,
        MeasureKind.MINIMUM,
        MeasureKind.MAXIMUM,
    )
)


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is measured: `of` is the field whose values are, `beside` are others that make one value together with it.

    `percent` is for percentiles alone, from 0 to 100. What is `sliding` is measured at each event again, of the window
    that ends there; all else in windows side by side.
    """

    kind: MeasureKind
    of: str = ""
    beside: tuple[str, ...] = ()
    percent: int | None = None
    sliding: bool = False

    @property
    def name(self) -> str:
        """The same for measures that one query can take: `events`, `percentile 95`, `sliding values`."""
        name = self.kind.value if self.percent is None else f"{self.kind.value} {self.percent}"
        return f"sliding {name}" if self.sliding else name

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields whose values are measured."""
        return (self.of, *self.beside) if self.of else ()


class Combination(msgspec.Struct, frozen=True):
    """Which sets of parts fulfil a condition: its words, and for each set a 1 or a 0.

    The parts of a set are the bits of its place: place 5 of `holds` is the set of the first and the third part.
    """

    words: str
    holds: str


class RuleStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that speaks of many events: `measure` of those that fit, in each window of `window_ms` by the fields `by`.

    It holds where the measure is within all bounds that are given; those of counts are whole, without `above` and
    `below`. `parts` are the ids of the rules whose events are counted; blank: its own. `aliases` says for a name in
    `by` or of a measured field which field it stands for in the events of each part.
    """

    measure: Measure
    window_ms: int
    by: tuple[str, ...] = ()
    at_least: int | float | None = 1
    parts: tuple[str, ...] = ()
    at_most: int | float | None = None
    aliases: dict[str, dict[str, str]] = {}
    above: int | float | None = None
    below: int | float | None = None
    other_than: int | float | None = None
    combination: Combination | None = None

    @property
    def bounds(self) -> str:
        """What the measure must be, in words."""
        if self.combination is not None:
            return self.combination.words
        given = (
            ("at least", self.at_least),
            ("above", self.above),
            ("at most", self.at_most),
            ("below", self.below),
            ("other than", self.other_than),
        )
        return " and ".join(f"{word} {bound}" for word, bound in given if bound is not None)

    @property
    def unfit_to_slide(self) -> str | None:
        """Why it cannot be measured in sliding windows; None where it can."""
        if self.measure.kind is MeasureKind.SEQUENCE:
            return "a sequence is found wherever it begins"
        if self.measure.kind not in _SLIDING:
            return f"a {self.measure.kind.value} is of windows side by side alone"
        others = (self.above, self.at_most, self.below, self.other_than)
        if not self.measure.kind.is_number and (self.at_least is None or any(bound is not None for bound in others)):
            return f"each window begins with few events: a sliding count can be at least so many, not {self.bounds}"
        return None

    def with_sliding_windows(self) -> RuleStatistics:
        """The same of sliding windows, where it is not unfit for them."""
        return msgspec.structs.replace(self, measure=msgspec.structs.replace(self.measure, sliding=True))

    @property
    def lower(self) -> float | None:
        """The least number of 64 bits that neither `at_least` nor `above` leaves out."""
        least = None if self.at_least is None else float(self.at_least)
        if self.above is None:
            return least
        above = math.nextafter(self.above, math.inf)
        return above if least is None else max(least, above)

    @property
    def upper(self) -> float | None:
        """The greatest number of 64 bits that neither `at_most` nor `below` leaves out."""
        most = None if self.at_most is None else float(self.at_most)
        if self.below is None:
            return most
        below = math.nextafter(self.below, -math.inf)
        return below if most is None else min(most, below)


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition with a name; `text` is what its author wrote.

    `shows` are the fields that an alert tells beside the event itself. Without `alerts` its events are only counted by
    the rules that name it as a part. `filters` are the titles of those that are part of its condition.
    """

    id: str
    title: str
    condition: Condition
    kind: RuleKind = "yaml"
    level: str = "medium"
    tags: tuple[str, ...] = ()
    author: str = ""
    license: str = ""
    shows: tuple[str, ...] = ()
    statistics: RuleStatistics | None = None
    enabled: bool = True
    text: str = ""
    alerts: bool = True
    filters: tuple[str, ...] = ()


class RuleSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rules in the order of their numbers, and where an event holds the fields that they name.

    A field is the first of its `paths` that is there and not null; one without paths is a key of the event itself. The
    path of no keys is the whole event as a text (`plain.whole_text`).
    """

    version: int
    rules: tuple[Rule, ...] = ()
    paths: dict[str, tuple[Path, ...]] = {}

    def encode(self) -> bytes:
        """The set as JSON, the same for equal sets."""
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, text: bytes) -> RuleSet:
        """The set of a text made by `encode`. Raises msgspec.MsgspecError for any other."""
        return _DECODER.decode(text)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(RuleSet)
