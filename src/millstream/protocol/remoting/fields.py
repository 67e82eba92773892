"""Reading the typed fields of a command's ext: what is missing or no number is refused with its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.model.errors import MessageRefused

__all__ = ["integer", "optional_integer", "text"]

_INT64: Final = 1 << 63


def text(ext: Mapping[str, str], name: str) -> str:
    """The field's text; MESSAGE_MALFORMED where it is missing or blank."""
    value = ext.get(name)
    if not value:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The request lacks the field {name}.",
            remedy="Send it; an empty one counts as missing.",
        )
    return value


def integer(ext: Mapping[str, str], name: str) -> int:
    """The field's number (64 bits); MESSAGE_MALFORMED where it is missing or no number."""
    try:
        number = int(ext[name])
    except (KeyError, ValueError):
        return _number(name, text(ext, name))
    return number if -_INT64 <= number < _INT64 else _number(name, ext[name])


def optional_integer(ext: Mapping[str, str], name: str, default: int) -> int:
    """The field's number, or `default` where it is missing; MESSAGE_MALFORMED where it is no number."""
    value = ext.get(name)
    return _number(name, value) if value else default


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = _INT64
    if not -_INT64 <= number < _INT64:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The request's field {name} is no number: {value[:40]!r}.",
            remedy="Send a whole number of 64 bits.",
        )
    return number
