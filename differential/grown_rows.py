"""Steps that look at one row at a time."""

from __future__ import annotations

from random import Random

from differential.relations import Relation, condition, grown, numbers, quoted, texts

__all__ = ["ROWWISE"]


def filtered(random: Random, below: Relation) -> Relation | None:
    """WHERE."""
    if not (numbers(below) or texts(below)):
        return None
    sql = f"SELECT {quoted(below.names())} FROM {{0}} WHERE {condition(random, below)}"
    return grown("filter", sql, below.types, below, **_kept(below))


def projected(random: Random, below: Relation) -> Relation | None:
    """A computed column beside the others."""
    name = f"p{below.mark}"
    if not numbers(below) or (texts(below) and random.random() < 0.3):
        if not texts(below):
            return None
        text = random.choice(texts(below))
        value, of = random.choice((f"COALESCE(`{text}`, 'none')", f"UPPER(`{text}`)", f"`{text}` || '!'")), "STRING"
    else:
        column = f"`{random.choice(numbers(below))}`"
        of = "INT"
        value = random.choice(
            (
                f"{column} + 1",
                f"COALESCE({column}, 0)",
                f"MOD({column}, 3)",
                f"CASE WHEN {column} > 4 THEN {column} ELSE 0 END",
                f"NULLIF({column}, 3)",
                f"ABS({column} - 5)",
            )
        )
    sql = f"SELECT {quoted(below.names())}, {value} AS `{name}` FROM {{0}}"
    return grown("project", sql, {**below.types, name: of}, below, **_kept(below))


def _kept(below: Relation) -> dict[str, object]:
    return {
        "time": below.time,
        "changes": below.changes,
        "windows": below.windows,
        "key": below.key,
        "in_order": below.in_order,
    }


ROWWISE = (filtered, projected)
