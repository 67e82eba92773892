"""Options that several commands share, and the exit codes that scripts rely on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal

from cyclopts import Parameter

__all__ = ["DEFAULT_NAMESERVER", "Common", "ExitCode", "OutputFormat"]

DEFAULT_NAMESERVER = "127.0.0.1:9876"

OutputFormat = Literal["table", "json", "plain"]


class ExitCode(IntEnum):
    """What the command's exit code says; part of the contract with scripts."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    PARTLY_DONE = 5


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every command that talks to a server takes."""

    nameserver: Annotated[str, Parameter(env_var="MILLSTREAM_NAMESERVER", help="Address of the nameserver.")] = (
        DEFAULT_NAMESERVER
    )
    output: Annotated[
        OutputFormat | None,
        Parameter(name=["--output", "-o"], help="table, json or plain. Default: table on a terminal, plain in a pipe."),
    ] = None
    timeout_s: Annotated[float, Parameter(name="--timeout", help="Seconds to wait for each answer.")] = 3.0
