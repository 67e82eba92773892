"""What a name may have been meant to be, for errors."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """' Did you mean "x"?' or blank."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), list(by_lower), 1, 0.6)
    return f'Did you mean "{by_lower[found[0]]}"?' if found else ""
