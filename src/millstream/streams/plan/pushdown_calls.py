"""Calls that merging of queries and predicate pushdown put into plans: which of many conditions hold for a row."""

from __future__ import annotations

from typing import Final

__all__ = ["BRANCHES", "IS_WANTED", "WANTED"]

BRANCHES: Final = "BRANCHES"
"""The numbers of its arguments, conditions, that hold: ARRAY<INT>, from 0."""

WANTED: Final = "WANTED"
"""The same where the source has judged the conditions: those from the number `first` to before `end`, from 0."""

IS_WANTED: Final = "IS_WANTED"
"""Whether the condition of that number holds, which the source has judged."""
