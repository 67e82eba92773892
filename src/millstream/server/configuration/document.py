"""Loads a configuration: a TOML document, overridden by command-line options."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from millstream.model.errors import StartRefused
from millstream.server.configuration.roles import ROLES
from millstream.server.configuration.setting import RoleSetting, settings_of

__all__ = ["MAX_DOCUMENT_BYTES", "configuration_of", "parse_document", "parse_value", "read_document", "role_of"]

MAX_DOCUMENT_BYTES: Final = 1024 * 1024
"""Bytes of a configuration file at most."""

_ROLE: Final = "role"

_T = TypeVar("_T")


def read_document(path: Path) -> dict[str, Any]:
    """What the file says. Raises CONFIGURATION_FILE where it cannot be read or is no TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise StartRefused("CONFIGURATION_FILE", f"{path} cannot be read: {error.strerror}.") from None
    if len(content) > MAX_DOCUMENT_BYTES:
        raise StartRefused("CONFIGURATION_FILE", f"{path} has over {MAX_DOCUMENT_BYTES:,} bytes.")
    return parse_document(content, str(path))


def parse_document(content: bytes, origin: str) -> dict[str, Any]:
    """The same for bytes; `origin` says in errors where they are from."""
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StartRefused("CONFIGURATION_FILE", f"{origin} is no TOML: {error}.") from None


def parse_value(text: str) -> tuple[str, Any]:
    """The name and value of `name=value`, as `--set` takes it; a value that is no TOML is a text.

    Raises ILLEGAL_SETTING.
    """
    name, mark, value = text.partition("=")
    if not mark or not name.strip():
        raise StartRefused("ILLEGAL_SETTING", f"--set {text[:120]} is not of the form name=value.")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return name.strip(), value


def role_of(document: Mapping[str, Any], origin: str) -> str | None:
    """The role that a document is for, where it says so. Raises ILLEGAL_SETTING for one that there is not."""
    role = document.get(_ROLE)
    if role is None or (isinstance(role, str) and role in ROLES):
        return role
    raise StartRefused("ILLEGAL_SETTING", f"{origin}: role is {role!r:.80}; it is to be {' or '.join(ROLES)}.")


def configuration_of(
    kind: type[_T], document: Mapping[str, Any], origin: str, overrides: Mapping[str, Any] | None = None
) -> _T:
    """The configuration of that class: the document's values, over them `overrides` by full name, else defaults.

    `origin` says in errors where the document is from. Raises UNKNOWN_SETTING, ILLEGAL_SETTING.
    """
    role = role_of(document, origin)
    wanted = next(name for name, one in ROLES.items() if one is kind)
    if role not in (None, wanted):
        raise StartRefused("ILLEGAL_SETTING", f"{origin} is for a {role}, and a {wanted} is to be started.")
    known = {one.path: one for one in settings_of(kind)}
    values = {
        path: _find_setting(known, path, origin).check(value, origin)
        for path, value in _flat({name: value for name, value in document.items() if name != _ROLE})
    }
    for path, value in (overrides or {}).items():
        values[path] = _find_setting(known, path, "command line").check(value, "command line")
    return _build(kind, values)


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            # An empty section says nothing, unless nobody knows it.
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found


def _find_setting(known: Mapping[str, RoleSetting], path: str, origin: str) -> RoleSetting:
    found = known.get(path)
    if found is None:
        near = get_close_matches(path, known, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise StartRefused("UNKNOWN_SETTING", f"{origin}: there is no setting {path[:120]}.{hint}")
    return found


def _build(kind: type[_T], values: Mapping[str, Any], prefix: str = "") -> _T:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]
        path = prefix + one.name
        if is_dataclass(hints[one.name]):
            given[one.name] = _build(hints[one.name], values, f"{path}.")
        elif path in values:
            given[one.name] = values[path]
    return kind(**given)
