"""Functions that Spark does not have, evaluated on Arrow arrays in a Python worker; equal inputs are computed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from millstream.model.filter import java_hash_code

__all__ = ["by_row", "capitalised", "hash_code", "json_value", "matched_group"]

_CACHED_PATTERNS = 1_000
_WORD = re.compile("[0-9A-Za-z]+")
_ARROW_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']*)'\]|\[\"([^\"]*)\"\]|\[(\d+)\]")


def by_row(function: Callable[..., Any], result: str, *columns: Column, nulls: bool = False) -> Column:
    """`function` of each row's values; NULL where one of them is, unless it takes `nulls`. `result` is Spark's type."""
    arrow_type = _ARROW_TYPES[result]

    def compute(*arrays: pa.Array) -> pa.Array:
        known: dict[tuple[Any, ...], Any] = {}
        values = []
        for row in zip(*(array.to_pylist() for array in arrays), strict=True):
            if row not in known:
                value = None if not nulls and None in row else function(*row)
                known[row] = list(value.items()) if isinstance(value, dict) else value
            values.append(known[row])
        return pa.array(values, arrow_type)

    return _vectorised(compute, result)(*columns)


def hash_code(text: Column) -> Column:
    """Java's `String.hashCode` of `text`; NULL of NULL."""

    def compute(values: pa.Array) -> pa.Array:
        return _each(values, java_hash_code, pa.int32())

    return _vectorised(compute, "int")(text)


def capitalised(text: Column) -> Column:
    """Each word with a large first letter; words are runs of ASCII letters and digits, and only those change case."""

    def compute(values: pa.Array) -> pa.Array:
        return _each(values, lambda value: _WORD.sub(lambda word: word[0].capitalize(), value), pa.string())

    return _vectorised(compute, "string")(text)


def json_value(document: Column, path: Column) -> Column:
    """The scalar at a path (`$.a.b[0]['c']`) of a JSON text; NULL where there is none, an object or an array."""

    def compute(documents: pa.Array, paths: pa.Array) -> pa.Array:
        return _pairs(documents, paths, _scalar_at, pa.string())

    return _vectorised(compute, "string")(document, path)


def matched_group(text: Column, pattern: Column, group: Column) -> Column:
    """The group of the first match; NULL where nothing matches, the group took no part, or the pattern is wrong.

    For patterns that only a row knows; Python's syntax of patterns in place of Java's.
    """

    def compute(texts: pa.Array, patterns: pa.Array, groups: pa.Array) -> pa.Array:
        rows = zip(texts.to_pylist(), patterns.to_pylist(), groups.to_pylist(), strict=True)
        return pa.array([_group(*row) for row in rows], pa.string())

    return _vectorised(compute, "string")(text, pattern, group)


def _vectorised(compute: Callable[..., pa.Array], result: str) -> Callable[..., Column]:
    """`compute` as a function of columns. PySpark's own hints do not know a plain function of arrays."""
    wrap: Callable[..., Callable[..., Column]] = arrow_udf
    return wrap(compute, result)


def _each(values: pa.Array, function: Callable[[Any], Any], arrow_type: pa.DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    computed = pa.array([function(value) for value in encoded.dictionary.to_pylist()], arrow_type)
    return computed.take(encoded.indices)


def _pairs(left: pa.Array, right: pa.Array, function: Callable[[Any, Any], Any], arrow_type: pa.DataType) -> pa.Array:
    rows = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([None if None in row else function(*row) for row in rows], arrow_type)


def _scalar_at(document: str, path: str) -> str | None:
    steps = _steps(path)
    if steps is None:
        return None
    try:
        value = msgspec.json.decode(document)
        for step in steps:
            value = value[step]
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError):
        return None
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _steps(path: str) -> tuple[str | int, ...] | None:
    """The members and indexes of a path; None for a path that is not simple."""
    text = path.strip()
    for mode in ("lax ", "strict "):
        text = text.removeprefix(mode).lstrip()
    if not text.startswith("$"):
        return None
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            return None
        name = next((part for part in found.groups()[:3] if part is not None), None)
        steps.append(int(found[4]) if name is None else name)
        position = found.end()
    return tuple(steps)


@lru_cache(maxsize=_CACHED_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        # Java means ASCII by \\d, \\w and \\b.
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None


def _group(text: str | None, pattern: str | None, group: int | None) -> str | None:
    if text is None or pattern is None or group is None:
        return None
    compiled = _compiled(pattern)
    found = compiled.search(text) if compiled is not None else None
    if found is None or not 0 <= group <= found.re.groups:
        return None
    return found[group]
