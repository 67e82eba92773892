"""`${name}` in scripts: values of the session, of SET 'var.name' = '...' and of the environment.

`${env:NAME}` is another thing: the value of a table option, see `streams.connectors.environment`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["ENVIRONMENT", "PREFIX", "Variables"]

PREFIX = "var."
"""What a setting's name begins with that is a variable."""

ENVIRONMENT = "env:"
"""What a reference to the environment begins with inside of ${...}."""


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
