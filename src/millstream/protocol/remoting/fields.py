"""Typed access to a command's ext fields, and request classes that declare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, Self

from millstream.model.errors import MessageRefused

__all__ = [
    "TYPED",
    "UNCAPPED",
    "Request",
    "choice_field",
    "flag_field",
    "integer",
    "is_typed",
    "is_uncapped",
    "list_field",
    "number_field",
    "optional_integer",
    "optional_number_field",
    "text",
    "text_field",
]


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


TYPED: Final = {"typed": "true"}
UNCAPPED: Final = {"uncapped": "true"}


def is_typed(ext: Mapping[str, str]) -> bool:
    """Whether messages of another type than their topic's are to be refused."""
    return ext.get("typed") == "true"


def is_uncapped(ext: Mapping[str, str]) -> bool:
    """Whether a pull may be answered by as many messages as it asks for."""
    return ext.get("uncapped") == "true"


_WIRE: Final = "wire"

_Read = Callable[[Mapping[str, str]], Any]
_Write = Callable[[Any], str | None]
"""The field's text; None where the field is left out."""


def text_field(name: str, default: str | None = None) -> Any:
    """A text; without a `default` it must be there and not blank. Left out where it is the default."""
    if default is None:
        return _field(name, lambda ext: ext.get(name) or text(ext, name), str)
    return _field(name, lambda ext: ext.get(name, default), lambda value: None if value == default else value, default)


def choice_field(name: str) -> Any:
    """A text or None, where it is missing or blank."""
    return _field(name, lambda ext: ext.get(name) or None, lambda value: value, None)


def number_field(name: str, default: int | None = None) -> Any:
    """A whole number of 64 bits; without a `default` it must be there. Left out where it is the default."""
    if default is None:
        return _field(name, lambda ext: integer(ext, name), str)

    def read(ext: Mapping[str, str]) -> int:
        # Not `optional_integer`: a call less for most fields of most requests.
        value = ext.get(name)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            return _number(name, value)
        return number if -_INT64 <= number < _INT64 else _number(name, value)

    return _field(name, read, lambda value: None if value == default else str(value), default)


def optional_number_field(name: str) -> Any:
    """A whole number of 64 bits or None, where it is missing or blank."""
    return _field(
        name,
        lambda ext: integer(ext, name) if ext.get(name) else None,
        lambda value: None if value is None else str(value),
        None,
    )


def flag_field(name: str, mark: str = "true") -> Any:
    """Whether the field says `mark`. Left out where it does not."""
    return _field(name, lambda ext: ext.get(name) == mark, lambda value: mark if value else None, False)


def list_field(name: str, separator: str = ",") -> Any:
    """A tuple of texts, none of them blank, that are joined by `separator`. Left out where it is empty."""
    return _field(
        name,
        lambda ext: tuple(filter(None, ext.get(name, "").split(separator))),
        lambda value: separator.join(value) or None,
        (),
    )


def _field(name: str, read: _Read, write: _Write, default: Any = dataclasses.MISSING) -> Any:
    metadata = {_WIRE: (name, read, write)}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Request:
    """A dataclass whose fields are made by the functions of this module."""

    __slots__ = ()

    @classmethod
    def decode(cls, ext: Mapping[str, str]) -> Self:
        """The request of these fields. MESSAGE_MALFORMED with the name of the field that is missing or no number."""
        return cls(*[read(ext) for read in _codec(cls).readers])

    def encode(self) -> dict[str, str]:
        """The fields, in the order of their declaration; those that say nothing are left out."""
        codec, ext = _codec(type(self)), {}
        for (name, write), value in zip(codec.writers, codec.values(self), strict=True):
            written = write(value)
            if written is not None:
                ext[name] = written
        return ext


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    """How a request class is read and written, looked up once: replicas ask for thousands of requests a second."""

    readers: tuple[_Read, ...]
    writers: tuple[tuple[str, _Write], ...]
    """The name and the text of each field."""
    values: Callable[[Request], tuple[Any, ...]]


_codecs: dict[type[Any], _Codec] = {}


def _codec(cls: type[Request]) -> _Codec:
    codec = _codecs.get(cls)
    if codec is None:
        codec = _codecs[cls] = _make_codec(cls)
    return codec


def _make_codec(cls: type[Request]) -> _Codec:
    declared = dataclasses.fields(cls)  # type: ignore[arg-type]
    wires = [one.metadata[_WIRE] for one in declared]
    names = [one.name for one in declared]
    return _Codec(
        tuple(read for _, read, _ in wires),
        tuple((name, write) for name, _, write in wires),
        attrgetter(*names) if len(names) > 1 else lambda request: tuple(getattr(request, name) for name in names),
    )
