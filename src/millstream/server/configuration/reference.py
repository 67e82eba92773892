"""Generates the reference of all settings from the configuration classes: as a template file and as a page."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import groupby
from textwrap import wrap
from typing import Any, get_type_hints

from millstream.server.configuration.roles import ROLES
from millstream.server.configuration.setting import RoleSetting, settings_of

__all__ = ["reference_page", "reference_text", "toml_value"]

_WIDTH = 118


def toml_value(value: Any) -> str:
    """The value as TOML writes it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def reference_text(role: str) -> str:
    """A configuration file of the role with every setting at its default and what it means."""
    lines = [f"# {_words(ROLES[role])}", f'role = "{role}"']
    for section, settings in _sections(role):
        if section:
            lines += ["", *_comment(_words(_section_class(ROLES[role], section))), f"[{section}]"]
        for one in settings:
            lines += [*_comment(f"{one.meaning} {one.wanted[0].upper()}{one.wanted[1:]}."), _line(one)]
    return "\n".join(lines) + "\n"


def reference_page() -> list[str]:
    """The lines of docs/configuration.md below its title."""
    lines = []
    for role, kind in ROLES.items():
        lines += [f"## `millstream start {role}`\n", f"{_words(kind)}\n"]
        lines += ["| setting | meaning | default | values |", "|---|---|---|---|"]
        for one in settings_of(kind):
            default = toml_value(one.default)
            lines.append(f"| `{one.path}` | {one.meaning} | `{default}` | {one.wanted} |")
        lines.append("")
    return lines


def _sections(role: str) -> Iterator[tuple[str, list[RoleSetting]]]:
    for section, settings in groupby(settings_of(ROLES[role]), lambda one: one.path.rpartition(".")[0]):
        yield section, list(settings)


def _section_class(kind: type, section: str) -> type:
    hints = get_type_hints(kind)
    found = next(hints[one.name] for one in fields(kind) if one.name == section and is_dataclass(hints[one.name]))
    assert isinstance(found, type)
    return found


def _words(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _comment(words: str) -> list[str]:
    return [f"# {line}" for line in wrap(words, _WIDTH)]


def _line(one: RoleSetting) -> str:
    return f"{one.path.rpartition('.')[2]} = {toml_value(one.default)}"
