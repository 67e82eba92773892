"""Validates options of WITH, functions and sources against their connector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import Option, OptionProblem, from_environment
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.errors import SqlError
from millstream.streams.functions.user_functions.user import UserFunction
from millstream.streams.plan.nodes import Node, scans_of
from millstream.streams.plan.tables import Table
from millstream.streams.secrets import shown_url
from millstream.streams.sql.options.option_aliases import renamed_options
from millstream.streams.sql.syntax.script import Script, Span, did_you_mean
from millstream.streams.sql.syntax.tables import OptionDefinition

__all__ = ["OPTIONS", "Accepted", "check_options", "check_read_options", "check_read_options_of_script", "with_options"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Options that are legal: under our names, with what the environment gave, and what is to be said about them."""

    connector: Connector
    options: dict[str, str]
    notes: tuple[str, ...] = ()


def check_options(options: Mapping[str, str]) -> Accepted:
    """The connector of WITH options, all of which are legal. Raises OptionProblem with the key that was written."""
    renamed = renamed_options(options, _known_options)
    named = CONNECTORS.get(renamed.options.get("connector", ""))
    if named is not None and named.delimiter_means_csv and "csv.field-delimiter" in renamed.options:
        renamed.options.setdefault("format", "csv")
    found = _with_environment(renamed.options, renamed.written)
    connector = _connector(found)
    notes = list(renamed.notes)
    kept: dict[str, str] = {}
    for key, value in found.items():
        option = connector.find(key) if key != "connector" else None
        if option is not None:
            try:
                _check(option, key, value, found.get("format", "json"))
            except OptionProblem as problem:
                raise OptionProblem(renamed.written[key], problem.message, problem.remedy) from None
            if option.ignored:
                notes.append(f"'{key}' does nothing: {option.ignored}.")
        elif key != "connector":
            raise _unknown(connector, renamed.written[key])
        kept[key] = renamed.options[key] if option is not None and option.secret else value
    _check_together(connector, found)
    return Accepted(connector, kept, tuple(notes))


def _known_options(connector: str) -> frozenset[str]:
    found = CONNECTORS.get(connector)
    return frozenset() if found is None else frozenset(option.name for option in found.options)


def _connector(options: Mapping[str, str]) -> Connector:
    if "connector" not in options:
        raise OptionProblem("", "The table has no 'connector'.", _list_connectors())
    name = options["connector"]
    if name not in CONNECTORS:
        broken = CONNECTORS.problem(name)
        if broken is not None:
            raise OptionProblem("connector", broken, "Mend that package, or install a release of it that fits.")
        raise OptionProblem(
            "connector", f"There is no connector '{name}'.", did_you_mean(name, list(CONNECTORS)) or _list_connectors()
        )
    return CONNECTORS[name]


def _list_connectors() -> str:
    """All connectors. To find those of installed packages takes far longer than all else that a table needs."""
    return f"Use one of {', '.join(CONNECTORS)}."


def _unknown(connector: Connector, key: str) -> OptionProblem:
    known = [option.name for option in connector.options]
    listed = f"Options: {', '.join(known)}." if known else "It has none."
    message = f"The connector '{connector.name}' has no option '{key}'."
    return OptionProblem(key, message, did_you_mean(key, known) or listed)


def _with_environment(options: Mapping[str, str], written: Mapping[str, str]) -> dict[str, str]:
    """The values with those of the environment in the place of ${env:NAME}."""
    values = {}
    for key, value in options.items():
        try:
            values[key] = from_environment(value)
        except KeyError as missing:
            name = missing.args[0]
            message = f"The environment has no {name}, which '{written[key]}' names."
            raise OptionProblem(written[key], message, f"Set it before the start: export {name}=...") from None
    return values


def _check(option: Option, key: str, value: str, format_name: str) -> None:
    problem = option.problem(value)
    if problem is not None:
        shown = "the value that it has" if option.secret else f"'{shown_url(value)}'"
        raise OptionProblem(key, f"'{key}' cannot be {shown}.", f"It is {problem}.")
    if option.format and option.format != format_name.lower():
        message = f"'{key}' belongs to the format '{option.format}', but the table's is '{format_name}'."
        raise OptionProblem(key, message, "Leave it out.")


_NEEDED_BY: Sequence[tuple[str, str, str]] = (
    ("scan.startup.mode", "timestamp", "scan.startup.timestamp-millis"),
    ("scan.startup.mode", "specific-offsets", "scan.startup.specific-offsets"),
    ("scan.startup.mode", "group-offsets", "consumer.group"),
    ("value.fields-include", "except_key", "key.format"),
    ("lookup.full-cache.reload-strategy", "timed", "lookup.full-cache.timed-reload.iso-time"),
)
"""Options that need another one where they have a value."""


_NEEDED_BY_FORMAT = {
    "avro-confluent": ("avro-confluent.url",),
    "debezium-avro-confluent": ("debezium-avro-confluent.url",),
    "protobuf": ("protobuf.descriptor-file", "protobuf.message-name"),
}
"""Options without which a format says nothing."""


def _check_together(connector: Connector, options: Mapping[str, str]) -> None:
    for option in connector.options:
        if option.required and option.name not in options:
            message = f"The connector '{connector.name}' needs the option '{option.name}'."
            raise OptionProblem("", message, option.description)
    defaults = {option.name for option in connector.options if option.default is not None}
    for key, value, needed in _NEEDED_BY:
        if options.get(key, "").lower() == value and needed not in options and needed not in defaults:
            raise OptionProblem(key, f"'{key}' = '{value}' needs '{needed}'.")
    for key, needed in (("access-key", "secret-key"), ("secret-key", "access-key")):
        if key in options and needed not in options:
            raise OptionProblem(key, f"'{key}' needs '{needed}'.")
    for key, needed in (("key.fields", "key.format"), ("key.format", "key.fields")):
        if connector.find("key.fields") is not None and key in options and needed not in options:
            raise OptionProblem(key, f"'{key}' needs '{needed}'.")
    chosen = options.get("format", "").lower()
    for key in _NEEDED_BY_FORMAT.get(chosen, ()):
        if connector.find(key) is not None and key not in options:
            raise OptionProblem("format", f"The format '{chosen}' needs '{key}'.")
    split = [key for key in options if key.startswith("scan.partition.")]
    if split and len(split) < 4:
        raise OptionProblem(split[0], "The four options 'scan.partition...' are given together.")


def check_read_options(nodes: Iterable[Node]) -> None:
    """Refuse a job that reads a table with two sets of options, which hints may give. Raises SQL_UNSUPPORTED."""
    found = _two_ways(nodes)
    if found is not None:
        raise SqlError("SQL_UNSUPPORTED", found[0], remedy=found[1])


def check_read_options_of_script(nodes: Iterable[Node], span: Span, script: Script) -> None:
    """The same, with the place in the script."""
    found = _two_ways(nodes)
    if found is not None:
        raise script.error("SQL_UNSUPPORTED", found[0], span, remedy=found[1])


def _two_ways(nodes: Iterable[Node]) -> tuple[str, str] | None:
    """What is wrong, and the remedy."""
    read: dict[str, Table] = {}
    for node in nodes:
        for scan in scans_of(node):
            table = read.setdefault(scan.table.name, scan.table)
            if table.options != scan.table.options:
                pairs = table.options.items() ^ scan.table.options.items()
                keys = ", ".join(sorted({f"'{key}'" for key, _ in pairs}))
                message = f'The job reads "{table.name}" in two ways: {keys} differs.'
                return message, (
                    f"Give each use the same OPTIONS(...), or read a second table: CREATE TABLE b LIKE {table.name}."
                )
    return None


OPTIONS: Final = ("deterministic",)
"""The options of CREATE FUNCTION."""

_DECORATED: Final = ("arguments", "result", "vectorised", "capacity", "timeout", "retries", "retry-wait")
"""What a decorator says, since a worker reads it of the function itself."""

_FLAGS = {"true": True, "false": False}


def with_options(function: UserFunction, options: Sequence[OptionDefinition], script: Script) -> UserFunction:
    """The function as the options have it. Raises SqlError SQL_OPTION at the option."""
    for option in options:
        name = option.key.lower()
        if name not in OPTIONS:
            message = f"A function has no option '{option.key}'."
            remedy = did_you_mean(name, OPTIONS) or f"The option is {', '.join(OPTIONS)}."
            if name.replace("_", "-").removesuffix("-s") in _DECORATED:
                remedy = "Say it where the function is: @udf(...) of millstream.streams.udf."
            raise script.error("SQL_OPTION", message, option.span, remedy=remedy)
        flag = _FLAGS.get(option.value.lower())
        if flag is None:
            message = f"'{option.key}' is 'true' or 'false', not '{option.value}'."
            raise script.error("SQL_OPTION", message, option.span)
        function = replace(function, deterministic=flag)
    return function
