"""LIKE, SIMILAR TO and regular expressions. An invalid pattern never fails a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from millstream.streams.functions.text.patterns import (
    ANY_TEXT,
    all_groups,
    first_match,
    like_parts,
    match_count,
    match_position,
    matched_group,
    replace_matches,
    similar_expression,
)
from millstream.streams.plan.expressions import Call, Literal
from millstream.streams.spark.functions.builder import Builder, by_row, literal

__all__ = ["PATTERNS", "is_pattern", "quote_pattern"]

_ESCAPE = "\x01"
"""The escape of the patterns handed to Spark, whose own default (a backslash) is a plain character in Flink."""

_MAYBE_UNUSED_GROUP = re.compile(r"\||\)[?*]|\)\{0")
"""What a pattern has if one of its groups can stay unused."""


def quote_pattern(text: Column) -> Column:
    """A pattern that matches exactly `text`."""
    return F.concat(F.lit(r"\Q"), F.replace(text, F.lit(r"\E"), F.lit(r"\E\\E\Q")), F.lit(r"\E"))


def _like(call: Call, columns: Sequence[Column]) -> Column:
    pattern = literal(call, 1, str)
    escape = literal(call, 2, str)
    if pattern is None:
        return F.like(columns[0], columns[1], F.lit(escape or _ESCAPE))
    rewritten = _with_own_escape(pattern, escape)
    return F.lit(None).cast("boolean") if rewritten is None else F.like(columns[0], F.lit(rewritten), F.lit(_ESCAPE))


def _with_own_escape(pattern: str, escape: str | None) -> str | None:
    """The pattern with `_ESCAPE` in place of `escape`; None where an escape stands before an ordinary character."""
    parts = like_parts(pattern, escape)
    return None if parts is None else "".join(map(_like_text, parts))


def _like_text(part: str | int | None) -> str:
    if isinstance(part, str):
        return "".join(_ESCAPE + one if one in (_ESCAPE, "%", "_") else one for one in part)
    return "%" if part is ANY_TEXT else "_"


def _similar(call: Call, columns: Sequence[Column]) -> Column:
    pattern = literal(call, 1, str)
    if pattern is None:
        return F.lit(None).cast("boolean")
    expression = similar_expression(pattern, literal(call, 2, str))
    return columns[0].rlike(expression) if _groups(expression) is not None else F.lit(None).cast("boolean")


def _regexp(call: Call, columns: Sequence[Column]) -> Column:
    pattern = call.arguments[1]
    if not isinstance(pattern, Literal):
        found = by_row(matched_group, "string", columns[0], columns[1], F.lit(0)).isNotNull() & (
            F.length(columns[1]) > 0
        )
        return F.when(columns[0].isNotNull() & columns[1].isNotNull(), found)
    if pattern.value is None:
        return F.lit(None).cast("boolean")
    text = str(pattern.value)
    if not text or _groups(text) is None:
        return F.when(columns[0].isNotNull(), F.lit(False))
    return columns[0].rlike(text)


def _regexp_extract(call: Call, columns: Sequence[Column]) -> Column:
    text = columns[0]
    pattern, group = literal(call, 1, str), 0 if len(columns) < 3 else literal(call, 2, int)
    if pattern is None or group is None:
        return by_row(matched_group, "string", text, columns[1], columns[2] if len(columns) > 2 else F.lit(0))
    groups = _groups(pattern)
    if groups is None or not 0 <= group <= groups:
        return F.lit(None).cast("string")
    if group and _MAYBE_UNUSED_GROUP.search(pattern) and _same_in_python(pattern, groups):
        return by_row(matched_group, "string", text, columns[1], F.lit(group))
    return F.when(text.rlike(pattern), F.regexp_extract(text, pattern, group))


def _regexp_replace(call: Call, columns: Sequence[Column]) -> Column:
    pattern = literal(call, 1, str)
    if pattern is None:
        return by_row(replace_matches, "string", *columns)
    if _groups(pattern) is None:
        return F.lit(None).cast("string")
    # Spark would expand $1 and \ in the replacement; Flink takes them as they are.
    escaped = F.replace(columns[2], F.lit("\\"), F.lit("\\\\"))
    return F.regexp_replace(columns[0], F.lit(pattern), F.replace(escaped, F.lit("$"), F.lit("\\$")))


def _search(spark: Callable[..., Column], python: Callable[[str, str], object], result: str) -> Builder:
    """A function of (text, pattern): Spark's where the pattern is a literal, else Python's."""

    def build(call: Call, columns: Sequence[Column]) -> Column:
        pattern = literal(call, 1, str)
        if pattern is None:
            return by_row(python, result, *columns)
        return spark(columns[0], F.lit(pattern)) if is_pattern(pattern) else F.lit(None).cast(result)

    return build


def _extract_all(call: Call, columns: Sequence[Column]) -> Column:
    group = 1 if len(columns) < 3 else literal(call, 2, int)
    pattern = literal(call, 1, str)
    groups = None if pattern is None else _groups(pattern)
    if pattern is None or group is None or (groups and _MAYBE_UNUSED_GROUP.search(pattern)):
        return by_row(all_groups, "array<string>", columns[0], columns[1], columns[2] if len(columns) > 2 else F.lit(1))
    if groups is None or not 0 <= group <= groups:
        return F.lit(None).cast("array<string>")
    return F.regexp_extract_all(columns[0], F.lit(pattern), group)


def is_pattern(pattern: str) -> bool:
    """Whether Java takes the pattern."""
    return _groups(pattern) is not None


def _groups(pattern: str) -> int | None:
    """How many groups a pattern has in Java; None if it is wrong."""
    session = SparkSession.active()
    compiler = session._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    try:
        return int(compiler.compile(pattern).matcher("").groupCount())
    except IllegalArgumentException:
        return None


def _same_in_python(pattern: str, groups: int) -> bool:
    try:
        return re.compile(pattern, re.ASCII).groups == groups
    except re.error:
        return False


PATTERNS: dict[str, Builder] = {
    "LIKE": _like,
    "SIMILAR": _similar,
    "REGEXP": _regexp,
    "REGEXP_EXTRACT": _regexp_extract,
    "REGEXP_REPLACE": _regexp_replace,
    "REGEXP_COUNT": _search(F.regexp_count, match_count, "int"),
    "REGEXP_EXTRACT_ALL": _extract_all,
    "REGEXP_INSTR": _search(F.regexp_instr, match_position, "int"),
    "REGEXP_SUBSTR": _search(F.regexp_substr, first_match, "string"),
}
