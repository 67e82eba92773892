"""Finds addresses and credentials for clients: from the environment, or from named profiles in the user's file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.model.errors import StartRefused

if TYPE_CHECKING:
    import ssl

    from millstream.security.signature import Credentials

__all__ = [
    "ACCESS_KEY_VARIABLE",
    "PROFILE_VARIABLE",
    "SECRET_KEY_VARIABLE",
    "TLS_CA_VARIABLE",
    "Profile",
    "Profiles",
    "credentials_of_environment",
    "profiles_path",
    "tls_of_environment",
]


ACCESS_KEY_VARIABLE = "MILLSTREAM_ACCESS_KEY"
SECRET_KEY_VARIABLE = "MILLSTREAM_SECRET_KEY"
TLS_CA_VARIABLE = "MILLSTREAM_TLS_CA"


def credentials_of_environment() -> Credentials | None:
    """The credentials of the two variables; None unless both are set."""
    access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
    if not access_key or not secret_key:
        return None
    from millstream.security.signature import Credentials

    return Credentials(access_key, secret_key)


def tls_of_environment() -> ssl.SSLContext | None:
    """What verifies servers by the file of the variable, or the machine's own trust (`system`); None if it is unset."""
    trusted = os.environ.get(TLS_CA_VARIABLE)
    if not trusted:
        return None
    from millstream.security.tls import client_context

    return client_context(trusted)


PROFILE_VARIABLE: Final = "MILLSTREAM_PROFILE"
"""Names the profile of a command that has no --profile."""

_REMEDY: Final = "Mend it, or move it away and set the profiles anew: millstream profile set NAME."


@dataclass(frozen=True, slots=True)
class Profile:
    """What stands for one cluster; an empty text says nothing. `nameserver` may be several, separated by `;`."""

    nameserver: str = ""
    grpc: str = ""
    access_key: str = ""
    secret_key: str = ""
    tls_ca: str = ""


@dataclass(slots=True)
class Profiles:
    """All profiles by name, and the one that counts where none is named."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    default: str = ""

    @classmethod
    def parse(cls, text: str, origin: str) -> Profiles:
        """The profiles of a document; `origin` is named in errors. Raises CONFIGURATION_FILE, UNKNOWN_SETTING."""
        import tomllib  # Here, because every command imports this module and most have no file to read.

        try:
            document = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise StartRefused("CONFIGURATION_FILE", f"{origin} is no TOML: {error}.", remedy=_REMEDY) from None
        tables = document.get("profile", {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise StartRefused("CONFIGURATION_FILE", f"{origin}: profile is to hold tables.", remedy=_REMEDY)
        default = document.get("default", "")
        return cls({name: _profile(name, table, origin) for name, table in tables.items()}, str(default))

    def text(self) -> str:
        """The document, as `parse` reads it."""
        lines = ["# Profiles of millstream; written by millstream profile.", f"default = {_quote(self.default)}"]
        for name, profile in sorted(self.profiles.items()):
            lines += ["", f"[profile.{_quote(name)}]"]
            lines += [f"{key} = {_quote(value)}" for key, value in asdict(profile).items() if value]
        return "\n".join(lines) + "\n"

    def find(self, name: str | None) -> Profile:
        """The profile of that name; of None the default one, or an empty one. Raises PROFILE_NOT_FOUND."""
        wanted = self.default if name is None else name
        if not wanted:
            return Profile()
        if wanted not in self.profiles:
            raise StartRefused("PROFILE_NOT_FOUND", f"There is no profile {wanted[:80]!r}.")
        return self.profiles[wanted]


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The user's file of profiles, by the rules for such files on Linux."""
    home = environment.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "millstream" / "profiles.toml"


def _profile(name: str, table: Mapping[str, Any], origin: str) -> Profile:
    known = [one.name for one in fields(Profile)]
    for key, value in table.items():
        if key not in known or not isinstance(value, str):
            words = f"{origin}: the profile {name} has {key} = {value!r:.80}; it may have texts for {', '.join(known)}."
            raise StartRefused("UNKNOWN_SETTING", words, remedy=_REMEDY)
    return Profile(**table)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
