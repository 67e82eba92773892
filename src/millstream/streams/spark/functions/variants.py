"""VARIANT on Spark: carried as JSON text in one form, read by Spark's own variants inside of an expression.

Equal values have equal texts: members of objects in order, numbers as short as they can be, no space. So they are keys
of groups and joins, and stand in state, without anybody's knowing of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

from millstream.streams.plan.expressions import Call, Literal

__all__ = ["parsed_json", "variant_item"]

_LAST_PLACE: Final = 2**31 - 1
_SPELLED: Final = r"^[^\"'?\\]+$"
"""Members that a path of Spark's can name."""


def parsed_json(_call: Call, columns: Sequence[Column]) -> Column:
    """The text as a VARIANT; NULL if it is no JSON, or has a member twice."""
    return F.to_json(F.try_parse_json(columns[0]))


def variant_item(call: Call, columns: Sequence[Column]) -> Column:
    """The element at a place of an array, or the member of an object; NULL where there is none."""
    value, key = columns
    if call.arguments[1].type.is_integer:
        path = F.concat(F.lit("$["), (key - 1).cast("string"), F.lit("]"))
        return F.when(key.between(1, _LAST_PLACE), _at(value, path))
    named = _at(value, F.concat(F.lit('$["'), key, F.lit('"]')))
    members = F.from_json(value, "map<string,variant>")
    found = F.to_json(F.try_element_at(members, key))
    if isinstance(call.arguments[1], Literal):
        # Spark reads a path that is a constant while it plans.
        text = str(call.arguments[1].value)
        return named if text and not set(text) & set("\"'?\\") else found
    return F.when(key.rlike(_SPELLED), named).when(key.isNotNull(), found)


def _at(value: Column, path: Column) -> Column:
    return F.to_json(F.try_variant_get(F.try_parse_json(value), path, "variant"))
