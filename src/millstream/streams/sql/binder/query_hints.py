"""Hints bound: options of a table, state kept for a time, how a lookup is done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from millstream.streams.connectors.options import OptionProblem, milliseconds
from millstream.streams.plan.nodes import Scan
from millstream.streams.sql.binder.query_context import QueryContext
from millstream.streams.sql.options.option_checks import check_options
from millstream.streams.sql.syntax.queries import Hint
from millstream.streams.sql.syntax.script import Script
from millstream.streams.sql.syntax.suggestions import did_you_mean

__all__ = ["check_hints", "lookup_hints", "state_ttl_ms", "with_options"]


def with_options(scan: Scan, hints: tuple[Hint, ...], script: Script) -> Scan:
    """The scan of the table with the options of OPTIONS(...) in place of its own. Raises SQL_OPTION."""
    options = dict(scan.table.options)
    for hint in hints:
        options.update(hint.arguments)
        try:
            options = check_options(options).options
        except OptionProblem as problem:
            raise script.error("SQL_OPTION", problem.message, hint.span, remedy=problem.remedy) from None
    return replace(scan, table=replace(scan.table, options=options))


def lookup_hints(context: QueryContext, names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """What LOOKUP('table' = 'one of the names', ...) says beside the table."""
    for hint in context.hints:
        arguments = dict(hint.arguments)
        if hint.name == "LOOKUP" and arguments.get("table") in names:
            return tuple((key, value) for key, value in hint.arguments if key != "table")
    return ()


def state_ttl_ms(context: QueryContext, names: Collection[str]) -> int | None:
    """What STATE_TTL('name' = 'duration') says of one of the names. Raises SQL_OPTION at what is no duration."""
    for hint in context.hints:
        if hint.name != "STATE_TTL":
            continue
        for key, value in hint.arguments:
            if key in names:
                return _duration_ms(value, hint, context.script)
    return None


def _duration_ms(text: str, hint: Hint, script: Script) -> int:
    try:
        return milliseconds(text)
    except ValueError:
        message, remedy = f"'{text}' is no duration.", "Write a number and a unit, as in '1 d' or '30 s'."
        raise script.error("SQL_OPTION", message, hint.span, remedy=remedy) from None


def check_hints(context: QueryContext, names: Collection[str]) -> None:
    """Refuse hints of tables that are not among the names and aliases of FROM."""
    for hint in context.hints:
        tables = [key for key, _ in hint.arguments]
        if hint.name == "LOOKUP":
            tables = [value for key, value in hint.arguments if key == "table"]
            if not tables:
                message = "LOOKUP needs 'table' = 'name'."
                raise context.script.error("SQL_OPTION", message, hint.span)
        for table in tables:
            if table not in names:
                message = f'{hint.name} names "{table}", which is not in FROM.'
                remedy = did_you_mean(table, list(names)) or f"In FROM: {', '.join(names)}."
                raise context.script.error("SQL_UNKNOWN_TABLE", message, hint.span, remedy=remedy)
