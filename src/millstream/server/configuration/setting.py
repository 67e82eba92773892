"""One setting of a configuration file: its meaning, valid values and default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Final, get_type_hints

from millstream.model.errors import StartRefused

__all__ = ["PORTS", "RoleSetting", "setting", "settings_of"]

PORTS: Final = (0, 65_535)
"""The range of a port; 0 takes a free one."""

_METADATA: Final = "setting"


@dataclass(frozen=True, slots=True)
class RoleSetting:
    """One row. `path` is its full name, as in `store.retention_hours`; numbers lie in `bounds`, both included."""

    path: str
    kind: type
    default: Any
    meaning: str
    bounds: tuple[int, int] | None = None
    choices: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        if self.bounds is not None:
            return f"a whole number, {self.bounds[0]:,} to {self.bounds[1]:,}"
        return {int: "a whole number", bool: "true or false", str: "a text", tuple: "a list of texts"}[self.kind]

    def check(self, value: object, origin: str) -> Any:
        """The value as the configuration holds it. Raises ILLEGAL_SETTING."""
        if self.kind is tuple and isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
        # bool is an int in Python, and a port of `true` is a mistake.
        fits = type(value) is self.kind and (not self.choices or value in self.choices)
        if fits and self.bounds is not None and isinstance(value, int):
            fits = self.bounds[0] <= value <= self.bounds[1]
        if not fits:
            shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
            raise StartRefused("ILLEGAL_SETTING", f"{origin}: {self.path} is {shown[:120]}; it is to be {self.wanted}.")
        return value


def setting(default: Any, meaning: str, *, bounds: tuple[int, int] | None = None, choices: Sequence[str] = ()) -> Any:
    """A field of a configuration class."""
    return field(default=default, metadata={_METADATA: (meaning, bounds, tuple(choices))})


def settings_of(kind: type, prefix: str = "") -> list[RoleSetting]:
    """All settings of a configuration class and of its sections, in their order."""
    hints = get_type_hints(kind)
    found: list[RoleSetting] = []
    for one in fields(kind):
        if is_dataclass(hints[one.name]):
            found += settings_of(hints[one.name], f"{prefix}{one.name}.")
        else:
            found.append(_setting(one, prefix))
    return found


def _setting(one: Field[Any], prefix: str) -> RoleSetting:
    assert one.default is not MISSING
    meaning, bounds, choices = one.metadata[_METADATA]
    return RoleSetting(prefix + one.name, type(one.default), one.default, meaning, bounds, choices)
