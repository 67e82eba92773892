"""Spark columns for every function of the registry, with Flink's semantics where Spark's differ.

`FUNCTIONS` maps the registry's name to a builder: it gets the call (types and literal arguments) and the columns of
its arguments. No builder raises for a row: a value that cannot be computed is NULL.
"""

from __future__ import annotations

from millstream.streams.functions.user_functions.user import USER_PREFIX
from millstream.streams.learning.model import MODEL_PREFIX
from millstream.streams.spark.functions.builder import Builder
from millstream.streams.spark.functions.collections import COLLECTIONS
from millstream.streams.spark.functions.conditions import CONDITIONS
from millstream.streams.spark.functions.documents import DOCUMENTS
from millstream.streams.spark.functions.models import model_call
from millstream.streams.spark.functions.numbers import NUMBERS
from millstream.streams.spark.functions.patterns import PATTERNS
from millstream.streams.spark.functions.security import DIGESTS, SECURITY
from millstream.streams.spark.functions.text import TEXT
from millstream.streams.spark.functions.times import TIMES
from millstream.streams.spark.functions.user_calls import user_call

__all__ = ["FUNCTIONS", "Builder", "builder_of"]

FUNCTIONS: dict[str, Builder] = {
    **CONDITIONS,
    **COLLECTIONS,
    **DIGESTS,
    **DOCUMENTS,
    **NUMBERS,
    **PATTERNS,
    **SECURITY,
    **TEXT,
    **TIMES,
}


def builder_of(function: str) -> Builder | None:
    """The builder of a call of that name, of the registry, a model's or a user's; None if there is none."""
    if function.startswith(MODEL_PREFIX):
        return model_call
    return user_call if function.startswith(USER_PREFIX) else FUNCTIONS.get(function)
