"""The fields of events that hold some deeper than at their top: what is on the way to them is looked up once an event.

A text on the way that spells a JSON object is read once so, however many fields are asked of the event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream.streams.rules.plain import (
    FIELD_SEPARATOR,
    FieldOf,
    Gathered,
    field_reader,
    is_presence,
    spelled_object,
    value_at,
)

__all__ = ["DeepFields"]

_MANY: Final = object()
"""In the place of a list on the way to a field: what its elements hold is gathered for each field."""

_Place = tuple[tuple[str, ...], str, Sequence[str]]
"""The keys on the way to a field, its own key, and both."""


class DeepFields:
    """Makes readers of events by one set of `paths`, each of which says what `plain.field_reader` says."""

    def __init__(self, paths: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._paths = paths
        self._places: dict[str, tuple[_Place, ...]] = {}

    def reader(self, event: Mapping[str, Any]) -> FieldOf:
        """The fields of one event, which is not to change meanwhile."""
        holders: dict[tuple[str, ...], Any] = {(): event}
        all_places = self._places

        def read(name: str) -> Any:
            places = all_places.get(name)
            if places is None:
                places = all_places[name] = self._placed(name)
            for above, key, path in places:
                if above in holders:
                    holder = holders[above]
                else:
                    holder = holders[above] = _holder(event, above)
                if holder is None:
                    continue
                value = value_at(event, path) if holder is _MANY else holder.get(key)
                if value is not None and not (type(value) is Gathered and FIELD_SEPARATOR in name):
                    return value
            return None if places else field_reader(event, self._paths)(name)

        return read

    def _placed(self, name: str) -> tuple[_Place, ...]:
        """Where a field is; nowhere, where it is no value of the event: its whole text, or whether it has another."""
        paths = self._paths.get(name)
        if paths is None:
            paths = () if is_presence(name) else ((name,),)
        return tuple((tuple(path[:-1]), path[-1], path) for path in paths) if all(paths) else ()


def _holder(event: Mapping[str, Any], above: Sequence[str]) -> Any:
    """The object at the end of `above`, `_MANY` for a list, None where there is neither."""
    value = value_at(event, above)
    if isinstance(value, str):
        value = spelled_object(value)
    elif isinstance(value, list):
        return _MANY
    return value if isinstance(value, Mapping) else None
