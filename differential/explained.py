"""Differences that have a reason: faults of Flink, and what is meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from differential.cases import Case
from differential.comparison import Difference
from differential.flink import Answer

__all__ = ["EXPLAINED", "Explained", "reason_of"]


class Explained(NamedTuple):
    """Which differences have the reason."""

    fits: Callable[[Case, Answer, Difference], bool]
    reason: str


def reason_of(case: Case, flink: Answer, difference: Difference) -> str | None:
    """Why the answers differ; None where nobody knows."""
    return next((one.reason for one in EXPLAINED if one.fits(case, flink, difference)), None)


_FINAL_FIRST: Final = re.compile(r"\bRank\(.*rankEnd=1\].*orderBy=\[(?!ROWTIME).*changelogMode=\[I\]")

_LATER_PLACE: Final = re.compile(r"\bRank\(strategy=\[RetractStrategy\].*rankStart=([2-9])")

_GAPS: Final = (
    "does not support retraction, Please choose",
    "StreamPhysicalWindowRank doesn't support consuming update changes",
    "StreamPhysicalOverAggregate doesn't support consuming update changes",
)
"""What Flink says of queries that it has no plan for."""


def _has_final_first_place(_case: Case, flink: Answer, difference: Difference) -> bool:
    """A first place by another order than time, of which Flink's plan says that it never changes."""
    return difference.aspect != "refused" and _FINAL_FIRST.search(flink.plan) is not None


def _has_later_place(case: Case, flink: Answer, difference: Difference) -> bool:
    """A place behind the first alone, over rows that change."""
    if difference.aspect == "broken":
        return any(step.kind == "top" and step.sql.endswith("= 2") for step in case.query.all())
    return difference.aspect in ("table", "moments") and _LATER_PLACE.search(flink.plan) is not None


def _finds_null(case: Case, flink: Answer, difference: Difference) -> bool:
    """A temporal join with versions of NULL."""
    is_temporal = "TemporalJoin(" in flink.plan and "versions" in case.kinds
    has_null = any(one.table == "b" and one.after is not None and one.after[1] is None for one in case.arrivals)
    return difference.aspect == "table" and is_temporal and has_null


def _flink_cannot_plan(_case: Case, flink: Answer, difference: Difference) -> bool:
    """Flink's planner gives up where ours goes on."""
    return difference.aspect == "refused" and any(words in flink.refused for words in _GAPS)


def _loses_correlation(_case: Case, flink: Answer, difference: Difference) -> bool:
    """Flink's planner leaves a correlated sub-query in the plan, and gives up."""
    return difference.aspect == "refused" and "unexpected correlate variable" in flink.refused


EXPLAINED: Final[tuple[Explained, ...]] = (
    Explained(
        _has_final_first_place,
        "A fault of Flink 2.1 to 2.3: it takes the first place for final where rows are only added, also by another"
        " order than time, and leaves all rows there that were first once.",
    ),
    Explained(
        _has_later_place,
        "A fault of Flink 2.3: a Top-N that begins behind the first place takes back rows that are not there, and"
        " leaves others, where rows of its input go.",
    ),
    Explained(_finds_null, "A fault of Flink 2.3: in a temporal join a key that is NULL finds the version of NULL."),
    Explained(
        _flink_cannot_plan,
        "Flink has no plan for it and ours has: an OVER behind some windows, and places in sessions of all rows that"
        " are grouped by more columns.",
    ),
    Explained(
        _loses_correlation,
        "A fault of Flink 2.3: it has no plan for EXISTS behind a full join of a temporal join.",
    ),
)
"""What differs for a reason. Everything else that differs is a fault, of ours or of the generator."""
