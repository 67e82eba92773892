"""The registry of SQL functions, with Flink's semantics unless an entry names another origin.

The Spark builders of the scalar functions stand in `millstream.streams.spark.functions` under the same names.
"""

from __future__ import annotations

from millstream.streams.functions.aggregates import AGGREGATES, WINDOW_FUNCTIONS
from millstream.streams.functions.scalars.collections import CHOICES, COLLECTIONS, DOCUMENTS
from millstream.streams.functions.scalars.numbers import NUMBERS
from millstream.streams.functions.scalars.security import SECURITY
from millstream.streams.functions.scalars.texts import DIGESTS, PATTERNS, TEXTS
from millstream.streams.functions.scalars.times import TIMES
from millstream.streams.functions.spec import FunctionSpec

__all__ = ["AGGREGATES", "FAMILIES", "FUNCTIONS", "WINDOW_FUNCTIONS", "FunctionSpec"]

FAMILIES: dict[str, tuple[FunctionSpec, ...]] = {
    "Choices and questions": CHOICES,
    "Numbers": NUMBERS,
    "Text": TEXTS,
    "Regular expressions": PATTERNS,
    "Time": TIMES,
    "Arrays, maps and rows": COLLECTIONS,
    "JSON": DOCUMENTS,
    "Digests": DIGESTS,
    "Logs and traffic": SECURITY,
}
"""The scalar functions under the titles of the reference."""

FUNCTIONS: dict[str, FunctionSpec] = {spec.name: spec for family in FAMILIES.values() for spec in family}
"""Scalar functions by name."""
