"""How much a text tells."""

from __future__ import annotations

import math
from collections import Counter

__all__ = ["entropy"]


def entropy(text: str) -> float:
    """Shannon's entropy in bits a character; 0 for a blank text."""
    shares = (count / len(text) for count in Counter(text).values())
    return abs(sum((share * math.log2(share) for share in shares), 0.0))
