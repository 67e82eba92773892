"""How deep a YAML text is nested, told before its values are made."""

from __future__ import annotations

from typing import Any, Final

import yaml

__all__ = ["MAX_YAML_DEPTH", "too_deep"]

MAX_YAML_DEPTH: Final = 60
"""Levels of nesting in a file of rules in YAML."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def too_deep(content: str) -> tuple[int, int] | None:
    """Line and column, from 1, of the first value below `MAX_YAML_DEPTH` levels; None where there is none.

    libyaml makes values on the stack, so that such a text would end the process. Where a text is no YAML whoever reads
    it comes to that, too.
    """
    try:
        return _first_too_deep(content)
    except yaml.MarkedYAMLError as error:
        # The scanner reads ahead of the events, and ends at 1,000 levels by a limit of its own: the text up to there
        # still has the value.
        before = content[: error.problem_mark.index] if error.problem_mark else ""
    except yaml.YAMLError:
        return None
    try:
        return _first_too_deep(before)
    except yaml.YAMLError:
        return None


def _first_too_deep(content: str) -> tuple[int, int] | None:
    """`too_deep`; YAMLError where the parser comes to a fault before such a value."""
    depth = 0
    for event in yaml.parse(content, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            mark: Any = event.start_mark
            return mark.line + 1, mark.column + 1
    return None
