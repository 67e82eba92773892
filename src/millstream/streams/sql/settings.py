"""The settings that SET knows, with their rules and defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.streams.sql.scalars import nearest

__all__ = ["SETTINGS", "Setting", "SettingProblem", "check_setting"]

_DURATION = r"\s*\d{1,9}\s*(ms|milli(second)?s?|s|sec(ond)?s?|m|min(ute)?s?|h|hours?|d|days?)?\s*"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; `pattern` (upper and lower case alike) is what a value looks like, `wanted` the same in words."""

    name: str
    default: str
    pattern: str
    wanted: str
    description: str


class SettingProblem(ValueError):
    """A setting that is not known or a value that it cannot have."""

    def __init__(self, name: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.name, self.message, self.remedy = name, message, remedy


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("execution.runtime-mode", "streaming", "streaming|batch", "streaming or batch", "How a job runs."),
        Setting("execution.checkpointing.interval", "0 s", _DURATION, "a duration such as '5 s'", "Time between micro-batches."),
        Setting("millstream.max-rows-per-trigger", "200000", r"[1-9]\d{0,9}", "a number of rows", "About how many rows a micro-batch reads."),
        Setting("millstream.nameserver", "", r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*", "host:port", "Nameserver of the tables."),
        Setting("pipeline.name", "", ".{1,100}", "a name of 1 to 100 characters", "Name of the next jobs."),
        Setting("table.exec.source.idle-timeout", "0 ms", _DURATION, "a duration such as '5 s'", "After how long without rows a queue holds no window up; 0: never."),
        Setting("table.exec.state.ttl", "0 ms", _DURATION, "a duration such as '1 h'", "How long state lives that nothing touches; 0: for ever."),
        Setting("table.local-time-zone", "UTC", "utc|etc/utc", "UTC, the only one", "Zone of TIMESTAMP_LTZ."),
    )
}  # fmt: skip
"""All settings by name."""


def check_setting(name: str, value: str) -> None:
    """Raise SettingProblem unless the setting is known and can have the value."""
    setting = SETTINGS.get(name)
    if setting is None:
        hint = nearest(name, list(SETTINGS)) or f"Settings: {', '.join(SETTINGS)}."
        raise SettingProblem("SQL_OPTION", f"There is no setting '{name}'.", hint)
    if not re.fullmatch(setting.pattern, value, re.IGNORECASE):
        kind = "SQL_UNSUPPORTED" if name == "table.local-time-zone" else "SQL_OPTION"
        raise SettingProblem(kind, f"'{name}' cannot be '{value}'.", f"It is {setting.wanted}.")
