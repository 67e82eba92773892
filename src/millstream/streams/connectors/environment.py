"""`${env:NAME}` in options of tables: read from the environment when a job starts, and never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from millstream.streams.errors import JobError

__all__ = ["from_environment", "with_environment"]

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
