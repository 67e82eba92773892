"""The hash code of a text as HASH_CODE tells it."""

from __future__ import annotations

from millstream.model.filter import java_hash_code

__all__ = ["hash_code"]

_INT_LIMIT = 2**31


def hash_code(text: str) -> int:
    """Java's hash code without its sign: Flink takes `Math.abs` of it, for which the smallest INT has no partner."""
    code = abs(java_hash_code(text))
    return -code if code == _INT_LIMIT else code
