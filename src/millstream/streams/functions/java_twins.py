"""Python versions of Java functions that well-known scripts reference, so that the scripts run unchanged."""

from __future__ import annotations

__all__ = ["JAVA_TWINS", "count_char"]


def count_char(text: str | None, character: str | None) -> int:
    """How often the first byte of `character` stands in the text; 0 for NULL. nexmark's q14 calls it."""
    if text is None or not character:
        return 0
    return text.encode().count(character.encode()[:1])


JAVA_TWINS = {"com.github.nexmark.flink.udf.CountChar": "millstream.streams.functions.java_twins.count_char"}
"""Classes, and the callables that do the same."""
