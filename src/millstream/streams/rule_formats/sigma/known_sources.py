"""What an event of the log sources beside Windows shows: the mapping that comes with the product."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from millstream.streams.rule_formats.sigma.mapping import EventMapping, read_mapping
from millstream.streams.rule_formats.sigma.values import either
from millstream.streams.rules.conditions import Condition, all_of
from millstream.streams.rules.predicates import Op, Predicate
from millstream.streams.rules.rule import Path as FieldPath

__all__ = ["NO_WINDOWS_LOG", "known_condition", "known_places"]

NO_WINDOWS_LOG: Final = Predicate("Channel", Op.IS_NULL)
"""An event that is no record of a Windows event log. Rules share it, so that Windows events are done with at once."""

_FILE: Final = Path(__file__).with_name("known_sources.yml")


@lru_cache(maxsize=1)
def _known_mapping() -> EventMapping:
    return read_mapping(_FILE)


def known_condition(words: Mapping[str, str]) -> Condition | None:
    """What an event of the log source shows, None where nothing is known.

    A log source that names less than an entry, as `service: sshd` does, is each of the entries that have its words.
    """
    found = _known_mapping().condition(words)
    if found is None:
        wider = [one.when for one in _known_mapping().sources if words.items() <= one.words.items()]
        found = either(*wider) if wider else None
    return None if found is None else all_of(NO_WINDOWS_LOG, found)


def known_places(field: str) -> tuple[FieldPath, ...]:
    """Where events of these log sources hold a field that they spell in several ways; none for other fields."""
    return tuple(dict.fromkeys(_known_mapping().fields.get(field, ())))
