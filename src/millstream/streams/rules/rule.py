"""A rule, and the set of rules that judges one stream at one time."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from millstream.streams.rules.formulas import Formula

__all__ = ["MAX_RULES", "Measure", "MeasureKind", "Rule", "RuleKind", "RuleSet", "Statistics"]

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
    """Different parts, in any order: how many of `Statistics.parts` had an event."""
    SEQUENCE = "sequence"
    """Parts that followed each other in the order of `Statistics.parts`."""


class Measure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is counted; `of` is the field whose values are."""

    kind: MeasureKind
    of: str = ""


class Statistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that speaks of many events: `measure` of those that fit, in each window of `window_ms` by the fields `by`.

    It holds where the measure is at least `at_least` and, if that is given, at most `at_most`. `parts` are the ids of
    the rules whose events are counted; blank: its own. `aliases` says for a name in `by` or `measure.of` which field it
    stands for in the events of each part.
    """

    measure: Measure
    window_ms: int
    by: tuple[str, ...] = ()
    at_least: int = 1
    parts: tuple[str, ...] = ()
    at_most: int | None = None
    aliases: dict[str, dict[str, str]] = {}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition with a name; `text` is what its author wrote.

    `shows` are the fields that an alert tells beside the event itself. Without `alerts` its events are only counted by
    the rules that name it as a part.
    """

    id: str
    title: str
    condition: Formula
    kind: RuleKind = "yaml"
    level: str = "medium"
    tags: tuple[str, ...] = ()
    author: str = ""
    license: str = ""
    shows: tuple[str, ...] = ()
    statistics: Statistics | None = None
    enabled: bool = True
    text: str = ""
    alerts: bool = True


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
