"""Options that several commands share, and the exit codes that scripts rely on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.client.environment import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, TLS_CA_VARIABLE

__all__ = ["DEFAULT_NAMESERVER", "Common", "ExitCode", "OutputFormat"]

DEFAULT_NAMESERVER = "127.0.0.1:9876"

MAX_TIMEOUT_S = 3600
"""Seconds of `--timeout` at most."""

OutputFormat = Literal["table", "json", "plain"]


class ExitCode(IntEnum):
    """What the command's exit code says; part of the contract with scripts."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    PARTLY_DONE = 5
    INTERRUPTED = 130


def _check_nameserver(_kind: object, value: str) -> None:
    """Refuse a text without an address; a mistyped one must not end in an internal error."""
    from millstream.client.conversations import parse_addresses

    parse_addresses(value)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """What every command that talks to a server takes."""

    nameserver: Annotated[
        str,
        Parameter(env_var="MILLSTREAM_NAMESERVER", help="Address of the nameserver.", validator=_check_nameserver),
    ] = DEFAULT_NAMESERVER
    output: Annotated[
        OutputFormat | None,
        Parameter(name=["--output", "-o"], help="table, json or plain. Default: table on a terminal, plain in a pipe."),
    ] = None
    access_key: Annotated[
        str | None,
        Parameter(name="--access-key", env_var=ACCESS_KEY_VARIABLE, help="Name of the user who signs the requests."),
    ] = None
    secret_key: Annotated[
        str | None,
        Parameter(
            name="--secret-key", env_var=SECRET_KEY_VARIABLE, help="Its secret; the variable hides it from other users."
        ),
    ] = None
    tls_ca: Annotated[
        str | None,
        Parameter(
            name="--tls-ca",
            env_var=TLS_CA_VARIABLE,
            help="Use TLS; certificates in PEM that are trusted, or system for the machine's own.",
        ),
    ] = None
    timeout_s: Annotated[
        float,
        Parameter(name="--timeout", help="Seconds to wait for each answer.", validator=Number(gt=0, lte=MAX_TIMEOUT_S)),
    ] = 3.0

    def __post_init__(self) -> None:
        """Hand credentials and trust to every client of the process and to the workers that it starts."""
        if self.access_key and self.secret_key:
            os.environ.update({ACCESS_KEY_VARIABLE: self.access_key, SECRET_KEY_VARIABLE: self.secret_key})
        if self.tls_ca:
            os.environ[TLS_CA_VARIABLE] = self.tls_ca
