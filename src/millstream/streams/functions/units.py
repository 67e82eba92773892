"""Units of time that functions are called with, as in EXTRACT(HOUR FROM ts) and FLOOR(ts TO DAY)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNIT_ARGUMENTS", "UnitArgument"]

_STEPS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_BOUNDS = (*_STEPS, "DECADE", "CENTURY", "MILLENNIUM")
_FIELDS = (*_BOUNDS, "MICROSECOND", "NANOSECOND", "ISOYEAR", "DOY", "DOW", "ISODOW", "EPOCH")


@dataclass(frozen=True, slots=True)
class UnitArgument:
    """Which argument is the unit (from 0), and the units it can be."""

    place: int
    units: tuple[str, ...]


UNIT_ARGUMENTS: dict[str, UnitArgument] = {
    "EXTRACT": UnitArgument(0, _FIELDS),
    "TIMESTAMPADD": UnitArgument(0, _STEPS),
    "TIMESTAMPDIFF": UnitArgument(0, _STEPS),
    "FLOOR": UnitArgument(1, _BOUNDS),
    "CEIL": UnitArgument(1, _BOUNDS),
}
"""The functions with a unit. FLOOR and CEIL have one only for times."""
