"""Namespaces: names that tenants choose on their own, kept apart as `namespace%name` behind this service.

A call names its namespace in the header x-mq-namespace and in its resources; behind the service the name of a topic or
group is the whole one, and clients never see it. The form is RocketMQ's, with `%RETRY%` and `%DLQ%` in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from millstream.model.errors import NameRefused
from millstream.model.topic import is_system_topic

__all__ = ["MAX_NAMESPACE_CHARACTERS", "Namespace"]

MAX_NAMESPACE_CHARACTERS = 64
"""Characters of a namespace at most; with it, names still have their own limits."""

_HEADER = "x-mq-namespace"
_LEGAL = re.compile(r"[a-zA-Z0-9_-]*")
_PREFIXES = ("%RETRY%", "%DLQ%")
_NAME_FIELDS = {"apache.rocketmq.v2.Resource": "name", "apache.rocketmq.v2.DeadLetterQueue": "topic"}


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace; the blank one changes nothing."""

    name: str

    @classmethod
    def of(cls, metadata: Mapping[str, str], message: Message) -> Namespace:
        """The namespace of a call: the header's, else that of the message's resources.

        Raises ILLEGAL_NAMESPACE where they are two, or have other characters than letters, digits, _ and -.
        """
        name = metadata.get(_HEADER, "")
        for place, _ in _named(message):
            said = getattr(place, "resource_namespace", "")
            if said and name and said != name:
                raise NameRefused(
                    "ILLEGAL_NAMESPACE", f"The call names two namespaces, {name[:80]!r} and {said[:80]!r}."
                )
            name = name or said
        if len(name) > MAX_NAMESPACE_CHARACTERS or not _LEGAL.fullmatch(name):
            raise NameRefused("ILLEGAL_NAMESPACE", f"{name[:80]!r} is no legal namespace.")
        return cls(name) if name else _NONE

    def enter(self, message: Message) -> None:
        """Give the names in a client's message their whole form."""
        if self.name:
            for place, field in _named(message):
                setattr(place, field, self.whole(getattr(place, field)))

    def leave(self, message: Message) -> None:
        """Give the names in a message for the client the form that it knows."""
        if self.name:
            for place, field in _named(message):
                setattr(place, field, self.own(getattr(place, field)))

    def whole(self, name: str) -> str:
        """`%DLQ%ns%group` for `%DLQ%group`. Names that have it, blank ones and the system's own stay as they are."""
        prefix, own = _split(name)
        if not own or own.startswith(f"{self.name}%") or is_system_topic(name):
            return name
        return f"{prefix}{self.name}%{own}"

    def own(self, name: str) -> str:
        """`%DLQ%group` for `%DLQ%ns%group`; names of other namespaces stay as they are."""
        prefix, whole = _split(name)
        return prefix + whole.removeprefix(f"{self.name}%")


_NONE = Namespace("")


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _named(message: Message) -> Iterator[tuple[Any, str]]:
    """Each part of a message that names a topic or a group, and the field that does."""
    field = _NAME_FIELDS.get(message.DESCRIPTOR.full_name)
    if field is not None:
        yield message, field
        return
    for name, is_repeated in _ways(message.DESCRIPTOR):
        if is_repeated:
            for part in getattr(message, name):
                yield from _named(part)
        elif message.HasField(name):
            yield from _named(getattr(message, name))


@lru_cache(maxsize=256)
def _ways(described: Descriptor) -> tuple[tuple[str, bool], ...]:
    """The fields by which names can be reached."""
    return tuple(
        (field.name, field.is_repeated)
        for field in described.fields
        if field.message_type is not None and _leads_to_a_name(field.message_type)
    )


def _leads_to_a_name(described: Descriptor) -> bool:
    return described.full_name in _NAME_FIELDS or bool(_ways(described))
