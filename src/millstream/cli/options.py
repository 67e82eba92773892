"""Options that several commands share, and the exit codes for scripts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.client.profiles import (
    ACCESS_KEY_VARIABLE,
    PROFILE_VARIABLE,
    SECRET_KEY_VARIABLE,
    TLS_CA_VARIABLE,
    Profile,
    Profiles,
    profiles_path,
)
from millstream.model.errors import StartRefused

__all__ = ["DEFAULT_NAMESERVER", "CommonOptions", "ExitCode", "OutputFormat", "check_nameserver", "load_profiles"]

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


def check_nameserver(_kind: object, value: str | None) -> None:
    """Refuse a text without an address; a mistyped one must not end in an internal error."""
    from millstream.client.operations import parse_addresses

    if value is not None:
        parse_addresses(value)


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """What every command that talks to a server takes."""

    named_nameserver: Annotated[
        str | None,
        Parameter(
            name="--nameserver",
            env_var="MILLSTREAM_NAMESERVER",
            help=f"Address of the nameserver, several separated by ;. Default: the profile's, or {DEFAULT_NAMESERVER}.",
            validator=check_nameserver,
        ),
    ] = None
    profile: Annotated[
        str | None,
        Parameter(env_var=PROFILE_VARIABLE, help="Name of a profile; default: the one of millstream profile use."),
    ] = None
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

    @property
    def nameserver(self) -> str:
        """The nameservers that are asked. The profile's credentials and trust count from here on, where none are named.

        Raises PROFILE_NOT_FOUND.
        """
        profile = self.chosen_profile
        if profile.access_key and profile.secret_key and not os.environ.get(ACCESS_KEY_VARIABLE):
            os.environ.update({ACCESS_KEY_VARIABLE: profile.access_key, SECRET_KEY_VARIABLE: profile.secret_key})
        if profile.tls_ca:
            os.environ.setdefault(TLS_CA_VARIABLE, profile.tls_ca)
        return self.named_nameserver or profile.nameserver or DEFAULT_NAMESERVER

    @property
    def chosen_profile(self) -> Profile:
        """The profile that is named, or the default one, which may say nothing. Raises PROFILE_NOT_FOUND."""
        return load_profiles().find(self.profile)


def load_profiles() -> Profiles:
    """The user's profiles; none where there is no file. Raises CONFIGURATION_FILE."""
    path = profiles_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise StartRefused("CONFIGURATION_FILE", f"{path} cannot be read: {error}.", remedy="") from None
    return Profiles.parse(text, str(path))
