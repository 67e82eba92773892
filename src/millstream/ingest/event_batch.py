"""Events of one input, batched for the topic, with keys and tags taken from their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from millstream.model.outside_text import MAX_LABEL_CHARACTERS, is_printable

__all__ = ["MAX_EVENT_BYTES", "EventBatch", "Labels"]


@dataclass(frozen=True, slots=True)
class Labels:
    """Where keys and tags come from: `tag` for all events, else the field at a path such as `user.id`.

    An event that is no JSON, or whose field is missing, blank or not printable, gets none.
    """

    key_field: str | None = None
    tag: str | None = None
    tag_field: str | None = None

    def label(self, event_batch: EventBatch) -> None:
        """Give the events of the batch their keys and tags; those that an input has set stay."""
        if self.key_field is None and self.tag_field is None:
            if self.tag is not None and event_batch.tags is None:
                event_batch.tags = [self.tag] * len(event_batch.bodies)
            return
        objects = [_object(body) for body in event_batch.bodies]
        if self.key_field is not None:
            event_batch.keys = _find_texts(objects, self.key_field)
        if self.tag_field is not None:
            tags = _find_texts(objects, self.tag_field)
            event_batch.tags = [self.tag if tag is None or "|" in tag else tag for tag in tags]
        elif self.tag is not None:
            event_batch.tags = [self.tag] * len(objects)


def _object(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _find_texts(objects: Sequence[Any], path: str) -> list[str | None]:
    names = path.split(".")
    return [_text(_at(one, path, names)) for one in objects]


def _at(one: Any, path: str, names: Sequence[str]) -> Any:
    if isinstance(one, dict) and path in one:
        return one[path]
    for name in names:
        if not isinstance(one, dict):
            return None
        one = one.get(name)
    return one


def _text(value: Any) -> str | None:
    if isinstance(value, bool | int | float):
        value = orjson.dumps(value).decode()
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_LABEL_CHARACTERS:
        return None
    return value if is_printable(value) else None


MAX_EVENT_BYTES: Final = 3 * 1024 * 1024
"""Bytes of one event at most, whatever the input: with its properties it still is a message of 4 MiB."""

_ROW_BYTES: Final = 64
"""What an event counts beyond its body, so that many small ones are bounded too."""


@dataclass(slots=True)
class EventBatch:
    """Events in their order. `shared` are properties of all of them, `own` those of single ones, over `shared`.

    `keys` and `tags` name one for each event, or are None. `dead` sends them to the dead-letter topic.
    """

    bodies: Sequence[bytes]
    shared: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    keys: Sequence[str | None] | None = None
    tags: Sequence[str | None] | None = None
    dead: bool = False
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self.size_bytes = sum(map(len, self.bodies)) + _ROW_BYTES * len(self.bodies)

    def properties(self, place: int) -> dict[str, str]:
        """All properties of one event."""
        own = self.own.get(place)
        return {**self.shared, **own} if own else dict(self.shared)

    def part(self, begin: int, end: int) -> EventBatch:
        """The events with `begin <= place < end`."""
        own = {place - begin: found for place, found in self.own.items() if begin <= place < end}
        keys = None if self.keys is None else self.keys[begin:end]
        tags = None if self.tags is None else self.tags[begin:end]
        return EventBatch(self.bodies[begin:end], self.shared, own, keys, tags, self.dead)
