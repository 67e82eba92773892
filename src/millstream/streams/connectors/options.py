"""Table options: the keys of WITH with their valid values, and `${env:NAME}` in values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.streams.errors import JobError

__all__ = [
    "CHANGES_OPTIONS",
    "DEAD_LETTER_OPTIONS",
    "DEAD_LETTER_TOPIC",
    "DURATION",
    "LOOKUP_OPTIONS",
    "Option",
    "OptionProblem",
    "bytes_of",
    "choice",
    "count",
    "duration",
    "flag",
    "from_environment",
    "milliseconds",
    "secret",
    "size",
    "text",
    "with_environment",
]


DURATION = r"\s*\d{1,9}\s*(ms|milli(second)?s?|s|sec(ond)?s?|m|min(ute)?s?|h|hours?|d|days?)?\s*"
"""How Flink writes a time: '5 s', '1min', '500 ms'; a number alone is milliseconds."""

_SIZE = r"\s*\d{1,12}\s*(b|bytes?|k|kb|kibibytes?|m|mb|mebibytes?|g|gb|gibibytes?|t|tb|tebibytes?)?\s*"


@dataclass(frozen=True, slots=True)
class Option:
    """One key of WITH. `choices` are the legal values, `pattern` what others look like (with `wanted` in words).

    A # in the name stands for a column, or for any name where `free_name`. `format` is the only format that it belongs
    to. A `secret` is never shown, and a reference to the environment in it is kept until a job starts. `ignored` says
    why it is read and does nothing.
    """

    name: str
    description: str
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    wanted: str = ""
    format: str = ""
    secret: bool = False
    ignored: str = ""
    free_name: bool = False

    def problem(self, value: str) -> str | None:
        """What is wrong with a value, in words, or None."""
        if self.choices and value.lower() not in (known.lower() for known in self.choices):
            return f"one of {', '.join(self.choices)}"
        if self.pattern is not None and not re.fullmatch(self.pattern, value, re.IGNORECASE):
            return self.wanted
        return None

    def column_of(self, key: str) -> str | None:
        """The column that `key` names in the place of #; None if the key is not one of this option."""
        before, mark, behind = self.name.partition("#")
        if not mark or not (key.startswith(before) and key.endswith(behind)):
            return None
        return key[len(before) : len(key) - len(behind)] or None


class OptionProblem(ValueError):
    """An option that cannot stay: its `key` (blank: a missing one), the message and a remedy."""

    def __init__(self, key: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.key, self.message, self.remedy = key, message, remedy


def text(name: str, description: str, *, pattern: str = r"(?s).+", wanted: str = "a text", required: bool = False,
         default: str | None = None, format: str = "") -> Option:  # fmt: skip
    """An option whose value looks like `pattern`."""
    return Option(name, description, required, default, (), pattern, wanted, format)


def choice(name: str, description: str, *choices: str, required: bool = False, default: str | None = None,
           format: str = "") -> Option:  # fmt: skip
    """An option with one of a few values, in any case of letters."""
    return Option(name, description, required, default, choices, format=format)


def flag(name: str, description: str, default: str = "false", *, format: str = "") -> Option:
    """An option that is true or false."""
    return Option(name, description, default=default, choices=("true", "false"), format=format)


def count(name: str, description: str, wanted: str, *, least: int = 1, required: bool = False,
          default: str | None = None) -> Option:  # fmt: skip
    """An option whose value is a whole number of at most 15 digits, 0 only where `least` is."""
    pattern = r"\d{1,15}" if least == 0 else r"0*[1-9]\d{0,14}"
    return Option(name, description, required, default, (), pattern, wanted)


def duration(name: str, description: str, default: str | None = None) -> Option:
    """An option whose value is a time such as '5 s'."""
    return Option(name, description, default=default, pattern=DURATION, wanted="a duration such as '5 s'")


def size(name: str, description: str, default: str | None = None) -> Option:
    """An option whose value is a number of bytes such as '128 MB'."""
    return Option(name, description, default=default, pattern=_SIZE, wanted="a size such as '128 MB'")


def secret(name: str, description: str) -> Option:
    """An option whose value, any text, is never shown."""
    return Option(name, description, pattern=r"(?s).*", wanted="a text", secret=True)


def milliseconds(text: str) -> int:
    """A value of the form `DURATION`. Raises ValueError for another."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]*)\s*", text.lower())
    unit = None if found is None else _UNITS_MS.get(found[2])
    if found is None or unit is None:
        raise ValueError(f"{text!r} is no duration")
    return int(found[1]) * unit


_UNITS_MS = {
    spelled: unit_ms
    for unit_ms, names in (
        (1, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000, ("s", "sec", "secs", "second", "seconds")),
        (60_000, ("m", "min", "mins", "minute", "minutes")),
        (3_600_000, ("h", "hour", "hours")),
        (86_400_000, ("d", "day", "days")),
    )
    for spelled in names
}


def bytes_of(text: str) -> int:
    """A value such as '128 MB', as `size` takes it. Raises ValueError for another."""
    found = re.fullmatch(r"\s*(\d{1,12})\s*([a-z]?)[a-z]*\s*", text.lower())
    power = None if found is None else _POWERS.get(found[2])
    if found is None or power is None:
        raise ValueError(f"{text!r} is no size")
    return int(found[1]) << power


_POWERS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""The first letter of a unit and the power of two that it stands for."""


_REFERENCE = re.compile(r"\$\{env:([^{}\s]+)\}")


def from_environment(value: str) -> str:
    """An option's value with every ${env:NAME} replaced. Raises KeyError with the name that is not set."""
    return _REFERENCE.sub(lambda found: os.environ[found[1]], value)


def with_environment(options: Mapping[str, str], what: str) -> dict[str, str]:
    """The options of a table as a job uses them. Raises JobError JOB_FAILED that says `what` cannot be done."""
    try:
        return {name: from_environment(value) for name, value in options.items()}
    except KeyError as missing:
        raise JobError("JOB_FAILED", f"{what}: the environment has no {missing.args[0]}.") from None


DEAD_LETTER_TOPIC: Final = "sink.dead-letter.topic"

LOOKUP_OPTIONS: tuple[Option, ...] = (
    choice("lookup.store", "How rows for lookups are kept: in each worker, or once per machine as a dimension table; default: dimension where the whole table is kept, and for large files.", "dimension", "plain"),
    flag("lookup.verify", "Whether a dimension table keeps its keys and compares them, beyond their 128-bit hashes."),
    flag("lookup.full-scan", "Whether a condition without any index may compare each row with the whole table."),
)  # fmt: skip
"""Those of every table that can become a dimension table."""

CHANGES_OPTIONS: tuple[Option, ...] = (
    text("lookup.changes.topic", "Topic with the changes of the table, which bring a dimension table up to date between its loads."),
    choice("lookup.changes.format", "What its messages are: rows as JSON, with the primary key as JSON in the message's key, where a message without a body deletes; or Debezium's envelopes.", "json", "debezium-json", default="json"),
    text("lookup.changes.nameserver", "Nameserver of that topic; default: that of the session."),
    duration("lookup.changes.interval", "How often a dimension table looks for new changes.", "10 s"),
    text("lookup.changes.access-key", "Who reads that topic; default: MILLSTREAM_ACCESS_KEY of the environment."),
    Option("lookup.changes.secret-key", "Their secret, best as ${env:NAME}.", pattern=r"(?s).*", wanted="a text", secret=True),
    text("lookup.changes.tls", "As 'tls' of the connector 'rocketmq'.", wanted="a path, or system"),
)  # fmt: skip
"""Those of files and tables of a database whose changes are in a topic."""

DEAD_LETTER_OPTIONS: tuple[Option, ...] = (
    text(DEAD_LETTER_TOPIC, "Topic for rows that are refused for good; default: the job ends.",
         pattern=r"[%|a-zA-Z0-9_-]{1,127}", wanted="a legal topic name (letters, digits, _ - % |)"),
    text("nameserver", "Nameserver of that topic; default: the session's.", wanted="host:port",
         pattern=r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*"),
)  # fmt: skip
"""What connectors with such rows declare."""
