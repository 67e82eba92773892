"""The queries with the tables that they read, as scripts of their own."""

from __future__ import annotations

from pathlib import Path

__all__ = ["CEP", "QUERIES", "events_text", "query_text", "tables_text", "topic_script"]

DIRECTORY = Path(__file__).parent / "queries"

QUERIES = tuple(f"q{number}" for number in range(24))
"""The queries by name."""

CEP = tuple(f"cep/q{number}" for number in range(4))
"""Those that match patterns."""


def query_text(name: str) -> str:
    """One query with its sink, the table `answers`."""
    return (DIRECTORY / f"{name}.sql").read_text()


def events_text(events: str) -> str:
    """The table of `events`, which are "made" or in a "topic"."""
    return (DIRECTORY / f"events_{events}.sql").read_text()


def tables_text(events: str) -> str:
    """That table and the views over it."""
    return events_text(events) + (DIRECTORY / "views.sql").read_text()


def topic_script(name: str) -> str:
    """A query over the topic `nexmark`."""
    return tables_text("topic") + query_text(name)
