"""The texts of Nexmark's queries as they are published, where the environment names a copy of them: none is in the tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.nexmark.scripts import CEP, QUERIES

__all__ = ["FILES", "found_files", "needs_published", "published_query", "published_text"]

DIRECTORY = os.environ.get("MILLSTREAM_NEXMARK_QUERIES", "")
"""The directory `nexmark-flink/src/main/resources` of the project that publishes them."""

FILES = (
    *(f"queries/{name}.sql" for name in (*QUERIES, "ddl", "ddl_gen", "ddl_gen_v2", "ddl_kafka", "ddl_views")),
    *(f"queries-{name}.sql" for name in CEP),
    *(f"queries-cep/{name}.sql" for name in ("ddl_gen", "ddl_kafka", "ddl_views", "insert_kafka")),
)
"""All that are published."""

needs_published = pytest.mark.skipif(not DIRECTORY, reason="MILLSTREAM_NEXMARK_QUERIES names no directory")


def found_files() -> set[str]:
    """The SQL files of the copy, as in `FILES`."""
    root = Path(DIRECTORY)
    return {path.relative_to(root).as_posix() for path in root.glob("queries*/*.sql")}


def published_text(*parts: str) -> str:
    """Some of the files, one behind the other."""
    return "\n".join((Path(DIRECTORY) / part).read_text() for part in parts)


def published_query(name: str, tables: str | None) -> str:
    """A query and the views over the events, behind the file of that name which declares them (None: none)."""
    folder, number = ("queries-cep", name[4:]) if name in CEP else ("queries", name)
    parts = ([tables] if tables is not None else []) + ["ddl_views", number]
    return published_text(*(f"{folder}/{part}.sql" for part in parts))
