"""Parses the URL of a database and the options beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from millstream.streams.errors import JobError

__all__ = ["DatabaseAddress", "DatabaseKind"]

DatabaseKind = str
"""`sqlite`, `mysql` or `postgresql`."""

_KINDS: Mapping[str, tuple[DatabaseKind, int]] = {
    "sqlite": ("sqlite", 0),
    "mysql": ("mysql", 3306),
    "mariadb": ("mysql", 3306),
    "postgresql": ("postgresql", 5432),
    "postgres": ("postgresql", 5432),
}
"""The kind and the port of each scheme."""

_REMEDY = "Use jdbc:postgresql://host:5432/name, jdbc:mysql://host:3306/name or jdbc:sqlite:/path/file.db."


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A database. `name` is the database's, or the file of SQLite; `options` stand behind the ? of the URL."""

    kind: DatabaseKind
    name: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str, user: str = "", password: str = "") -> DatabaseAddress:
        """The place of a URL such as jdbc:postgresql://host:5432/name.

        A user and a password in the URL count where none are given. Raises JobError DATABASE_URL.
        """
        plain = url.removeprefix("jdbc:")
        scheme, _, rest = plain.partition(":")
        if scheme.lower() not in _KINDS:
            raise JobError("DATABASE_URL", f"There is no driver for {scheme}.", remedy=_REMEDY)
        kind, default_port = _KINDS[scheme.lower()]
        if kind == "sqlite":
            # sqlite:///var/x.db is the way of Python's tools, jdbc:sqlite:/var/x.db that of Java's.
            file = rest.partition("?")[0]
            return cls(kind, file[2:] if file.startswith("//") else file)
        try:
            parts = urlsplit(plain)
            port = parts.port or default_port
        except ValueError:
            # Python's words would show the whole of it, with a password that may be there.
            raise JobError("DATABASE_URL", f"The URL of {scheme} cannot be read.", remedy=_REMEDY) from None
        options = dict(parse_qsl(parts.query))
        return cls(
            kind,
            unquote(parts.path.lstrip("/")),
            parts.hostname or "localhost",
            port,
            user or options.pop("user", "") or unquote(parts.username or ""),
            password or options.pop("password", "") or unquote(parts.password or ""),
            options,
        )

    def __str__(self) -> str:
        """The place without who logs in."""
        return f"sqlite:{self.name}" if self.kind == "sqlite" else f"{self.kind}://{self.host}:{self.port}/{self.name}"
