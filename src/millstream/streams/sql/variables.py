"""`${name}` in scripts: values of the session, of SET 'var.name' = '...' and of the environment.

`${env:NAME}` is another thing: the value of a table option that is read when a job starts and never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from millstream.streams.errors import JobError

__all__ = ["ENVIRONMENT", "PREFIX", "Variables", "from_environment", "with_environment"]

PREFIX = "var."
"""What a setting's name begins with that is a variable."""

ENVIRONMENT = "env:"
"""What a reference to the environment begins with inside of ${...}."""

_REFERENCE = re.compile(r"\$\{env:([^{}\s]+)\}")


class Variables:
    """The variables of one script: each name's value, SET in the script before what the session gave before the
    environment."""

    def __init__(self, given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._given = dict(given)
        self._set: dict[str, str] = {}
        self._environment = os.environ if environment is None else environment

    def find(self, name: str) -> str | None:
        """The value, or None."""
        for values in (self._set, self._given, self._environment):
            if name in values:
                return values[name]
        return None

    def assign(self, name: str, value: str) -> None:
        """What SET says, for all that stands behind it."""
        self._set[name] = value

    def forget(self, name: str | None) -> None:
        """What RESET says: back to the session's or the environment's value; None is every variable of SET."""
        if name is None:
            self._set.clear()
        else:
            self._set.pop(name, None)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the script and the session gave: what a misspelled one may have meant."""
        return (*self._set, *self._given)


def from_environment(value: str) -> str:
    """An option's value with every ${env:NAME} replaced. Raises KeyError with the name that is not set."""
    return _REFERENCE.sub(lambda found: os.environ[found[1]], value)


def with_environment(options: Mapping[str, str], what: str) -> dict[str, str]:
    """The options of a table as a job uses them. Raises JobError JOB_FAILED that says `what` cannot be done."""
    try:
        return {name: from_environment(value) for name, value in options.items()}
    except KeyError as missing:
        raise JobError("JOB_FAILED", f"{what}: the environment has no {missing.args[0]}.") from None
