"""Namespaces: tenants choose names freely; they are stored as `namespace%name`.

A call names its namespace in the header x-mq-namespace and in its resources; behind the service the name of a topic or
group is the whole one, and clients never see it. The form is RocketMQ's, with `%RETRY%` and `%DLQ%` in front.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from millstream.model.errors import NameRefused
from millstream.model.topic import is_system_topic

__all__ = ["MAX_NAMESPACE_CHARACTERS", "NAMESPACE_HEADER", "NO_NAMESPACE", "Namespace"]

MAX_NAMESPACE_CHARACTERS = 64
"""Characters of a namespace at most; with it, names still have their own limits."""

NAMESPACE_HEADER = "x-mq-namespace"
_LEGAL = re.compile(r"[a-zA-Z0-9_-]*")
_PREFIXES = ("%RETRY%", "%DLQ%")
_RESOURCE_NAME, _RESOURCE_SPACE = "name", "resource_namespace"
_NAME_FIELDS = {"apache.rocketmq.v2.Resource": _RESOURCE_NAME, "apache.rocketmq.v2.DeadLetterQueue": "topic"}


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace; the blank one changes nothing."""

    name: str

    @classmethod
    def of(cls, metadata: Mapping[str, str], message: Message) -> Namespace:
        """The namespace of a call: the header's, else that of the message's resources.

        Raises ILLEGAL_NAMESPACE where they are two, or have other characters than letters, digits, _ and -.
        """
        name = metadata.get(NAMESPACE_HEADER, "")
        for said in _namespaces_of(message, _reading(message.DESCRIPTOR)):
            if name and said != name:
                raise NameRefused(
                    "ILLEGAL_NAMESPACE", f"The call names two namespaces, {name[:80]!r} and {said[:80]!r}."
                )
            name = name or said
        return cls.of_name(name)

    @classmethod
    def of_name(cls, name: str) -> Namespace:
        """The namespace of that name; ILLEGAL_NAMESPACE. A blank one changes nothing."""
        if not name:
            return NO_NAMESPACE
        if len(name) > MAX_NAMESPACE_CHARACTERS or not _LEGAL.fullmatch(name):
            raise NameRefused("ILLEGAL_NAMESPACE", f"{name[:80]!r} is no legal namespace.")
        return cls(name)

    def enter(self, message: Message) -> None:
        """Give the names in a client's message their whole form."""
        if self.name:
            for place, field in _find_names(message):
                setattr(place, field, self.whole(getattr(place, field)))

    def leave(self, message: Message) -> None:
        """Give the names in a message for the client the form that it knows."""
        if self.name:
            for place, field in _find_names(message):
                setattr(place, field, self.own(getattr(place, field)))

    def whole(self, name: str) -> str:
        """`%DLQ%ns%group` for `%DLQ%group`. Names that have it, blank ones and the system's own stay as they are."""
        if not self.name:
            return name
        prefix, own = _split(name)
        if not own or own.startswith(f"{self.name}%") or is_system_topic(name):
            return name
        return f"{prefix}{self.name}%{own}"

    def own(self, name: str) -> str:
        """`%DLQ%group` for `%DLQ%ns%group`; names of other namespaces stay as they are."""
        if not self.name:
            return name
        prefix, whole = _split(name)
        return prefix + whole.removeprefix(f"{self.name}%")


NO_NAMESPACE = Namespace("")
"""That of most calls."""


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


class _Reading(NamedTuple):
    """How the namespaces that a message names are read: `once` gives those of the resources that it has once.

    `blank` is what `once` gives where there are none. `lists` are the lists in which there are more.
    """

    once: Callable[[Any], Any]
    blank: Any
    lists: tuple[tuple[Callable[[Any], Any], _Reading], ...]


def _namespaces_of(message: Message, reading: _Reading) -> list[str]:
    """The namespaces that the resources of a message name."""
    # Runs for every request. What is not set reads as blank; a slice, because an iterator ends by an IndexError.
    once, blank, lists = reading
    said = once(message)
    found: list[str] = [] if said == blank else [said] if isinstance(said, str) else [name for name in said if name]
    for parts, further in lists:
        for part in parts(message)[:]:
            found += _namespaces_of(part, further)
    return found


@lru_cache(maxsize=256)
def _reading(described: Descriptor) -> _Reading:
    """How namespaces are read of messages of a kind; resources are the names that have one of their own."""
    single, lists = _places(described)
    once = attrgetter(*single) if single else _nothing
    blank = ("",) * len(single) if len(single) != 1 else ""
    return _Reading(once, blank, tuple((attrgetter(path), _reading(kind)) for path, kind in lists))


def _places(described: Descriptor) -> tuple[list[str], list[tuple[str, Descriptor]]]:
    """The dotted names of the namespaces that a message has once, and of the lists in which there may be more."""
    if _NAME_FIELDS.get(described.full_name) == _RESOURCE_NAME:
        return [_RESOURCE_SPACE], []
    single: list[str] = []
    lists: list[tuple[str, Descriptor]] = []
    for way in _ways(described):
        kind = described.fields_by_name[way.field].message_type
        assert kind is not None
        names, further = _places(kind)
        if way.is_repeated:
            lists += [(way.field, kind)] if names or further else []
        else:
            single += [f"{way.field}.{name}" for name in names]
            lists += [(f"{way.field}.{path}", part) for path, part in further]
    return single, lists


def _nothing(message: Message) -> tuple[()]:
    return ()


class _Way(NamedTuple):
    """A field by which names can be reached. `name_field` is set where its value itself has one."""

    field: str
    is_repeated: bool
    name_field: str | None
    ways: tuple[_Way, ...]


def _find_names(message: Message) -> list[tuple[Any, str]]:
    """Each part of a message that names a topic or a group, and the field that does."""
    found: list[tuple[Any, str]] = []
    _collect(message, _ways(message.DESCRIPTOR), found)
    return found


def _collect(message: Message, ways: tuple[_Way, ...], found: list[tuple[Any, str]]) -> None:
    # Runs for every request: all that the descriptors say was read before.
    for field, is_repeated, name_field, further in ways:
        if is_repeated:
            parts = getattr(message, field)
        elif message.HasField(field):
            parts = (getattr(message, field),)
        else:
            continue
        for part in parts:
            if name_field is None:
                _collect(part, further, found)
            else:
                found.append((part, name_field))


@lru_cache(maxsize=256)
def _ways(described: Descriptor) -> tuple[_Way, ...]:
    """The fields by which names can be reached."""
    ways = []
    for field in described.fields:
        if field.message_type is not None:
            name_field = _NAME_FIELDS.get(field.message_type.full_name)
            further = () if name_field else _ways(field.message_type)
            if name_field or further:
                ways.append(_Way(field.name, field.is_repeated, name_field, further))
    return tuple(ways)
