"""What each connector takes: options with their rules, metadata columns, and whether it reads, writes or both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind
from millstream.streams.sql.scalars import nearest

__all__ = ["CONNECTORS", "Connector", "Option", "OptionProblem", "check_options"]

_INSTANT = DataType(TypeKind.TIMESTAMP_LTZ, precision=3)
_TEXT_MAP = DataType(TypeKind.MAP, elements=(STRING, STRING))
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


@dataclass(frozen=True, slots=True)
class Option:
    """One key of WITH. `choices` are the legal values, `pattern` what others look like (with `wanted` in words)."""

    name: str
    description: str
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    wanted: str = ""

    def problem(self, value: str) -> str | None:
        """What is wrong with a value, in words, or None."""
        if self.choices and value.lower() not in self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            return self.wanted
        return None


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector. `metadata` maps the keys of METADATA columns to their types."""

    name: str
    options: tuple[Option, ...]
    metadata: Mapping[str, DataType]
    reads: bool
    writes: bool


class OptionProblem(ValueError):
    """An option that cannot stay: its `key` (blank: a missing one), the message and a remedy."""

    def __init__(self, key: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.key, self.message, self.remedy = key, message, remedy


_TOPIC = (_TOPIC_NAME.pattern, "a legal topic name (letters, digits, _ - % |)")
_ADDRESS = (r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*", "host:port")
_TRUE_FALSE = ("true", "false")

CONNECTORS: dict[str, Connector] = {
    connector.name: connector
    for connector in (
        Connector(
            "rocketmq",
            (
                Option("topic", "The topic.", required=True, pattern=_TOPIC[0], wanted=_TOPIC[1]),
                Option("nameserver", "Nameserver; default: the session's.", pattern=_ADDRESS[0], wanted=_ADDRESS[1]),
                Option("format", "How rows are written in a message.", default="json", choices=("json",)),
                Option(
                    "scan.startup.mode",
                    "Where a job without a checkpoint begins.",
                    default="earliest-offset",
                    choices=("earliest-offset", "latest-offset", "timestamp"),
                ),
                Option("scan.startup.timestamp-millis", "Store time to begin at.", pattern=r"\d{1,15}", wanted="milliseconds"),
                Option("scan.max-rows-per-trigger", "About how many rows a micro-batch reads.", pattern=r"[1-9]\d{0,9}", wanted="a number of rows"),
                Option("tag", "Tags to read, joined by ||.", default="*"),
                Option("consumer.group", "Group whose offsets show how far the job is.", pattern=_TOPIC[0], wanted="a legal group name"),
                Option("dead-letter.topic", "Where malformed messages go; default: TOPIC_dead_letter.", pattern=_TOPIC[0], wanted=_TOPIC[1]),
                Option("json.ignore-parse-errors", "Only count malformed messages.", default="false", choices=_TRUE_FALSE),
                Option("json.timestamp-format.standard", "How times are written.", default="SQL", choices=("sql", "iso-8601")),
                Option("sink.tag", "Tag of the messages that are written."),
                Option("sink.key-column", "Column whose value is the message's key."),
            ),
            {
                "topic": STRING, "queue-id": INT, "queue-offset": BIGINT, "message-id": STRING, "keys": STRING,
                "tag": STRING, "born-timestamp": _INSTANT, "store-timestamp": _INSTANT, "properties": _TEXT_MAP,
            },
            reads=True,
            writes=True,
        ),
        Connector(
            "filesystem",
            (
                Option("path", "Directory of the files.", required=True, pattern=r".+", wanted="a path"),
                Option("format", "Format of the files.", default="json", choices=("json", "csv", "parquet")),
            ),
            {},
            reads=False,
            writes=True,
        ),
        Connector("print", (Option("print-identifier", "Name shown before each row; default: the table's."),), {}, reads=False, writes=True),
        Connector("blackhole", (), {}, reads=False, writes=True),
    )
}  # fmt: skip
"""All connectors by name."""


def check_options(options: Mapping[str, str]) -> Connector:
    """The connector of WITH options, all of which are legal. Raises OptionProblem."""
    if "connector" not in options:
        raise OptionProblem("", "The table has no 'connector'.", f"Use one of {', '.join(CONNECTORS)}.")
    name = options["connector"]
    connector = CONNECTORS.get(name)
    if connector is None:
        hint = nearest(name, list(CONNECTORS))
        raise OptionProblem(
            "connector", f"There is no connector '{name}'.", hint or f"Use one of {', '.join(CONNECTORS)}."
        )
    known = {option.name: option for option in connector.options}
    for key, value in options.items():
        if key == "connector":
            continue
        option = known.get(key)
        if option is None:
            hint = nearest(key, list(known))
            listed = f"Options: {', '.join(known)}." if known else "It has none."
            raise OptionProblem(key, f"The connector '{name}' has no option '{key}'.", hint or listed)
        problem = option.problem(value)
        if problem is not None:
            raise OptionProblem(key, f"'{key}' cannot be '{value}'.", f"It is {problem}.")
    for option in connector.options:
        if option.required and option.name not in options:
            raise OptionProblem("", f"The connector '{name}' needs the option '{option.name}'.", option.description)
    if options.get("scan.startup.mode", "").lower() == "timestamp" and "scan.startup.timestamp-millis" not in options:
        raise OptionProblem("scan.startup.mode", "The mode 'timestamp' needs 'scan.startup.timestamp-millis'.")
    return connector
