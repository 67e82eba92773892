"""A site's event mapping: log sources, field names, and placeholders.

docs/rules.md is the reference of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from millstream.streams.errors import RuleError
from millstream.streams.rule_formats.yaml.conditions import condition_of
from millstream.streams.rule_formats.yaml_document import Entries, YamlFault, documents, items, refuse, scalar, text
from millstream.streams.rules.conditions import Condition
from millstream.streams.rules.imported_rules import dotted_paths
from millstream.streams.rules.rule import Path as FieldPath

__all__ = ["EventMapping", "MappedSource", "Placeholders", "read_mapping", "read_placeholders"]

MAX_MAPPING_BYTES: Final = 1 << 20
"""Bytes of a mapping file, at most."""

_SOURCE_KEYS: Final = ("product", "category", "service")

_Made = TypeVar("_Made")

Placeholders = dict[str, tuple[str | int | float, ...]]
"""The values that each placeholder stands for."""


class MappedSource(msgspec.Struct, frozen=True):
    """The log sources that have these words, and what an event of them must be."""

    words: dict[str, str]
    when: Condition

    def fits(self, source: Mapping[Any, Any]) -> bool:
        """Whether a rule's log source has all of the words."""
        return all(source.get(key) == word for key, word in self.words.items())


class EventMapping(msgspec.Struct, frozen=True):
    """Log sources in the order of the file, places of fields, which come before the known ones, and placeholders.

    Where `events_of` has the words of log sources, all events are of one of these, and rules for others are left out.
    Rules for log sources that nothing tells judge nothing, or every event that is no record of a Windows event log.
    """

    sources: tuple[MappedSource, ...] = ()
    fields: dict[str, tuple[FieldPath, ...]] = {}
    placeholders: Placeholders = {}
    events_of: tuple[dict[str, str], ...] = ()
    unmapped_judge_everything: bool = False

    def condition(self, source: Mapping[Any, Any]) -> Condition | None:
        """What an event of the log source must be, by the entry with most words; None where none fits."""
        fitting = [one for one in self.sources if one.fits(source)]
        return max(fitting, key=lambda one: len(one.words)).when if fitting else None


def read_mapping(file: Path) -> EventMapping:
    """What the file says. Raises RuleError RULE_FILE with the place of what is wrong in it."""
    return _read(file, "mapping of events", _mapping)


def read_placeholders(file: Path) -> Placeholders:
    """The values of placeholders in a file that says `name: [values]`. Raises RULE_FILE as `read_mapping` does."""
    return _read(file, "file of placeholders", _placeholders)


def _read(file: Path, what: str, made: Callable[[yaml.Node], _Made]) -> _Made:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_MAPPING_BYTES + 1)
        if len(content) > MAX_MAPPING_BYTES:
            raise _refusal(file, what, f"it is larger than {MAX_MAPPING_BYTES:,} bytes")
        found = list(documents(content.decode("utf-8-sig")))
        if len(found) != 1:
            raise _refusal(file, what, f"it has {len(found)} documents instead of one")
        return made(found[0])
    except OSError as error:
        raise _refusal(file, what, error.strerror or "it cannot be read") from None
    except UnicodeDecodeError:
        raise _refusal(file, what, "it is no UTF-8 text") from None
    except YamlFault as fault:
        raise _refusal(f"{file}:{fault.line}:{fault.column}", what, fault.reason.removesuffix(".")) from None


def _refusal(place: Path | str, what: str, reason: str) -> RuleError:
    message = f"The {what} cannot be taken: {place}: {reason}."
    return RuleError("RULE_FILE", message, remedy="docs/rules.md shows what such a file says.")


def _mapping(node: yaml.Node) -> EventMapping:
    keys = ("log sources", "fields", "placeholders")
    entries = Entries(node, f"a map with {', '.join(keys)}")
    sources, fields, placeholders = (entries.take(key) for key in keys)
    entries.end(keys)
    return EventMapping(
        tuple(_source(one) for one in items(sources)) if sources is not None else (),
        {
            name: tuple(
                path for one in items(value) for path in dotted_paths(text(one, "a field such as process.name"))
            )
            for name, (_, value) in _map(fields, "a map of fields and where events hold them").items()
        },
        {} if placeholders is None else _placeholders(placeholders),
    )


def _placeholders(node: yaml.Node) -> Placeholders:
    found = _map(node, "a map of placeholders and their values")
    return {name: tuple(_value(one) for one in _some(name, value)) for name, (_, value) in found.items()}


def _some(name: str, node: yaml.Node) -> list[yaml.Node]:
    found = list(items(node))
    if not found:
        refuse(node, f"The placeholder {name!r} needs a value at least.")
    return found


def _map(node: yaml.Node | None, what: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    return {} if node is None else Entries(node, what).left


def _source(node: yaml.Node) -> MappedSource:
    entries = Entries(node, "a log source with product, category or service, and 'when'")
    words = {key: text(found, f"a {key}") for key in _SOURCE_KEYS if (found := entries.take(key)) is not None}
    if not words:
        refuse(node, "A log source needs a product, a category or a service.")
    when = condition_of(entries.need("when", "a condition such as log_type = 'auditd'"), caseless=True)
    entries.end((*_SOURCE_KEYS, "when"))
    return MappedSource(words, when)


def _value(node: yaml.Node) -> str | int | float:
    value = scalar(node, "a text or a number")
    return text(node, "a text or a number") if isinstance(value, bool) else value
