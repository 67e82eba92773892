"""The texts and tables of TPC-DS, where the environment names copies of them: neither is in the tree."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

__all__ = ["DIFFERENCES", "declared", "found_queries", "found_tables", "needs_copies", "query_text", "without_limit"]

QUERIES: Final = os.environ.get("MILLSTREAM_TPCDS_QUERIES", "")
"""A directory of `q1.sql` to `q99.sql`, as Spark, DuckDB and others ship them; variants such as `q14a.sql` are read too."""

DATA: Final = os.environ.get("MILLSTREAM_TPCDS_DATA", "")
"""A directory of Parquet files by table, `store_sales.parquet` and the others."""

needs_copies = pytest.mark.skipif(not (QUERIES and DATA), reason="MILLSTREAM_TPCDS_QUERIES or _DATA names no directory")

_AVERAGE: Final = "AVG of whole numbers is whole in Flink's SQL, a DOUBLE in Spark's"
_QUOTIENT: Final = "a whole number by a whole number is whole in Flink's SQL, a DOUBLE in Spark's"
_SPREAD: Final = (
    "AVG and STDDEV_SAMP of whole numbers, and their quotient, are whole in Flink's SQL, a DOUBLE in Spark's"
)

DIFFERENCES: Final[dict[str, str]] = {
    **dict.fromkeys("q7 q13 q22 q22a q26 q27 q27a q35 q35a q85".split(), _AVERAGE),
    **dict.fromkeys("q21 q34 q73 q78 q83".split(), _QUOTIENT),
    **dict.fromkeys("q17 q39 q39a q39b".split(), _SPREAD),
}
"""Queries whose answer may differ from Spark's for the same text, and the rule of Flink's SQL that it follows then."""

_STRINGS: Final = re.compile(r"('(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*)")

_LIMIT: Final = re.compile(r"\blimit\s+\d+\s*$")

_SPELLINGS: Final = (
    (re.compile(r"interval\s+(\d+)\s+days?\b"), r"interval '\1' day"),
    (re.compile(r"(\bd_date\s*[+-]\s*)(\d+)\b"), r"\1interval '\2' day"),
    (re.compile(r"\bc_last_review_date\b"), "c_last_review_date_sk"),
)
"""What one of both engines does not take, in words that both do; the column is called so since version 2 of TPC-DS."""


def found_tables() -> list[Path]:
    """The files of the tables."""
    return sorted(Path(DATA).glob("*.parquet")) if DATA else []


def found_queries() -> list[str]:
    """The names of the queries there are, `q1` first."""
    names = [path.stem for path in Path(QUERIES).glob("q*.sql")] if QUERIES else []
    return sorted(names, key=lambda name: (int("".join(filter(str.isdigit, name))), name))


def query_text(name: str) -> str:
    """A query as both engines take it.

    TPC-DS does not tell capitals from small letters, Flink's SQL does: what is no string is in small letters. Names in
    "double quotes" stand in back-ticks.
    """
    text = (Path(QUERIES) / f"{name}.sql").read_text().strip().rstrip(";")
    parts = []
    for part in _STRINGS.split(text):
        if part.startswith("--"):
            continue
        parts.append(_requoted(part) if part[:1] in ("'", '"') else part.lower())
    text = "".join(parts)
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def without_limit(text: str) -> str:
    """The query with all of its rows."""
    return _LIMIT.sub("", text)


def _requoted(part: str) -> str:
    return f"`{part[1:-1]}`" if part.startswith('"') else part


def declared() -> str:
    """CREATE TABLE for each file, by its columns."""
    statements = []
    for path in found_tables():
        columns = ", ".join(f"`{column.name}` {_type(column.type)}" for column in pq.read_schema(path))
        options = f"'connector' = 'filesystem', 'path' = '{path.resolve()}', 'format' = 'parquet'"
        statements.append(f"CREATE TABLE {path.stem} ({columns}) WITH ({options});")
    return "\n".join(statements)


def _type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    names = ((pa.types.is_int64, "BIGINT"), (pa.types.is_int32, "INT"), (pa.types.is_date, "DATE"))
    return next((name for is_one, name in names if is_one(type_)), "STRING")
