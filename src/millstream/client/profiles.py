"""Named sets of addresses and credentials, in a file of the user's own.

Format: TOML with `default = "name"` and a table `[profile.name]` of texts for each. Secrets stand in it, so it is for
its owner's eyes only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from millstream.model.errors import StartRefused

__all__ = ["PROFILE_VARIABLE", "Profile", "Profiles", "profiles_path"]

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
