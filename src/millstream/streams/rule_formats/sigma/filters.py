"""Sigma filters: conditions added to the rules that they reference and whose log source they share.

Source: the Sigma Filters Specification 2.1.0. As in pySigma a rule holds where the filter's condition holds as well, so
one that takes events out says `condition: not selection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from millstream.streams.rule_formats.sigma.conditions import Placeholders, detection_condition
from millstream.streams.rule_formats.sigma.documents import SigmaDocument
from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rules.conditions import Condition, Truth

__all__ = ["RuleFilter", "read_filter"]

_ANY: Final = "any"
_WORDS: Final = ("product", "category", "service")


class RuleFilter(NamedTuple):
    """A filter and where it stands; `names` are the rules that it is for, None for all of its log source."""

    title: str
    path: Path
    line: int
    names_line: int
    names: tuple[str, ...] | None
    source: Mapping[str, Any]
    condition: Condition

    def fits(self, source: Mapping[Any, Any]) -> bool:
        """Whether a rule's log source has all the words of the filter's."""
        return all(source.get(key) == self.source[key] for key in _WORDS if self.source.get(key) is not None)


def read_filter(path: Path, document: SigmaDocument, placeholders: Placeholders) -> RuleFilter:
    """The filter of a document. Raises Fault."""
    fields = document.value
    section, source, title = fields["filter"], fields.get("logsource"), fields.get("title")
    if not isinstance(title, str) or not title.strip():
        raise Fault("a filter needs a title", document.line("title"))
    if not isinstance(section, Mapping):
        raise Fault("a filter is a map of keys and values", document.line("filter"))
    if not isinstance(source, Mapping) or all(source.get(key) is None for key in _WORDS):
        raise Fault("a filter needs a log source: product, category or service", document.line("logsource"))
    names = _names(section.get("rules"), document.line("filter", "rules"))
    condition = section.get("condition")
    if not isinstance(condition, str):
        raise Fault("the condition of a filter must be a text", document.line("filter", "condition"))
    formula = detection_condition(document, [condition], placeholders, section="filter")
    if isinstance(formula, Truth):
        raise Fault("the condition does not depend on the event", document.line("filter", "condition"))
    line = document.line() or 1
    return RuleFilter(title.strip(), path, line, document.line("filter", "rules") or line, names, source, formula)


def _names(named: Any, line: int | None) -> tuple[str, ...] | None:
    if isinstance(named, str):
        return None if named.lower() == _ANY else (named,)
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise Fault("a filter names its rules in `rules`: ids or names, or any", line)
    return tuple(dict.fromkeys(named)) or None
