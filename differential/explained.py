"""Differences that are meant, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from differential.cases import Case
from differential.comparison import Difference

__all__ = ["EXPLAINED", "Explained", "reason_of"]


class Explained(NamedTuple):
    """Which differences are meant, and why."""

    fits: Callable[[Case, Difference], bool]
    reason: str


def reason_of(case: Case, difference: Difference) -> str | None:
    """Why the difference is meant; None where it is not."""
    return next((one.reason for one in EXPLAINED if one.fits(case, difference)), None)


def _is_final_first_place(case: Case, difference: Difference) -> bool:
    """A first place by more than the time, over rows that may be only added."""
    tops = [step for step in case.query.all() if step.kind == "top"]
    return difference.aspect != "refused" and any("`place` <= 1" in one.sql or "` <= 1" in one.sql for one in tops)


def _is_later_place(case: Case, difference: Difference) -> bool:
    """A place behind the first alone, over rows that change."""
    return difference.aspect == "broken" and any(
        step.kind == "top" and step.sql.endswith("= 2") for step in case.query.all()
    )


EXPLAINED: Final[tuple[Explained, ...]] = (
    Explained(
        _is_later_place,
        "A fault of Flink 2.3: its Top-N with an offset takes back rows that are not there when rows of its input go.",
    ),
)
"""What is meant to differ. Everything else that differs is a fault, of ours or of the generator."""
