"""YAML with source positions: nodes know their lines, so that errors can name line and column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

import yaml

from millstream.streams.rules.conditions import Operand

__all__ = [
    "MAX_YAML_DEPTH",
    "MAX_YAML_VALUES",
    "Entries",
    "TooDeep",
    "YamlFault",
    "documents",
    "is_null",
    "items",
    "line_of",
    "read_nodes",
    "refuse",
    "scalar",
    "text",
    "too_deep",
    "truth",
    "unknown",
]

MAX_YAML_DEPTH: Final = 60
"""Levels of nesting in a file of rules in YAML."""

MAX_YAML_VALUES: Final = 1_000_000
"""Values of one file of rules in YAML, those that are repeated by anchors counted each time."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_SHOWN_CHARACTERS = 60
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,999}|0x[0-9a-fA-F]{1,100})")
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?")


class YamlFault(Exception):
    """What is wrong, at a line and a column that count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class TooDeep(YamlFault):
    """A value lies below `MAX_YAML_DEPTH` levels."""


def refuse(node: yaml.Node, reason: str) -> NoReturn:
    """Raise the fault of that node."""
    raise _fault(node.start_mark, reason)


def _fault(mark: Any, reason: str) -> YamlFault:
    return YamlFault(reason, 1, 1) if mark is None else YamlFault(reason, mark.line + 1, mark.column + 1)


def too_deep(content: str) -> tuple[int, int] | None:
    """Line and column, from 1, of the first value below `MAX_YAML_DEPTH` levels; None where there is none.

    libyaml makes values on the stack, so that such a text would end the process. Where a text is no YAML the reader
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


def read_nodes(content: str) -> Iterator[yaml.Node]:
    """The documents of a text one by one, empty ones among them.

    Raises TooDeep before the first one, and yaml.YAMLError behind those that come before what is no YAML.
    """
    deep = too_deep(content)
    if deep is not None:
        raise TooDeep(f"It is nested deeper than {MAX_YAML_DEPTH} levels.", *deep)
    loader = _LOADER(content)
    try:
        while loader.check_node():
            yield loader.get_node()
    finally:
        loader.dispose()


def documents(content: str) -> Iterator[yaml.Node]:
    """The documents of a text, those that are empty left out. Raises YamlFault where it is no YAML, or too large."""
    try:
        for node in read_nodes(content):
            if not is_null(node):
                _check_size(node)
                yield node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(filter(None, (error.context, error.problem)))
        raise _fault(mark, f"This is no YAML: {words}.") from None
    except yaml.YAMLError as error:
        raise _fault(None, f"This is no YAML: {' '.join(str(error).split())}.") from None


def _check_size(root: yaml.Node) -> None:
    waiting: list[tuple[yaml.Node, int]] = [(root, 1)]
    values = 0
    while waiting:
        node, depth = waiting.pop()
        values += 1
        if depth > MAX_YAML_DEPTH:
            refuse(node, f"It is nested deeper than {MAX_YAML_DEPTH} levels.")
        if values > MAX_YAML_VALUES:
            refuse(root, f"It has more than {MAX_YAML_VALUES:,} values.")
        if isinstance(node, yaml.SequenceNode):
            waiting += [(one, depth + 1) for one in node.value]
        elif isinstance(node, yaml.MappingNode):
            waiting += [(one, depth + 1) for pair in node.value for one in pair]


def line_of(node: yaml.Node, keys: Sequence[Any]) -> tuple[int, int]:
    """How many of the keys (of lists: places from 0) are there one below the other, and the last one's line, from 1."""
    line = node.start_mark.line
    for depth, key in enumerate(keys):
        found = _below(node, key)
        if found is None:
            return depth, line + 1
        line, node = found
    return len(keys), line + 1


def _below(node: yaml.Node, key: Any) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark.line, node.value[key]
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark.line, value
    return None


def is_null(node: yaml.Node) -> bool:
    """Whether it is null or nothing."""
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def scalar(node: yaml.Node, what: str) -> Operand:
    """A text, number or truth value; what YAML takes for more than that (`22:30`, `yes`, `010`, dates) is a text."""
    if not isinstance(node, yaml.ScalarNode) or is_null(node):
        refuse(node, f"Expected {what}, found {_kind(node)}.")
    written = str(node.value)
    tag = node.tag.removeprefix(_TAG)
    if tag == "bool" and written.lower() in ("true", "false"):
        return written.lower() == "true"
    if tag == "int" and _WHOLE.fullmatch(written):
        return int(written, 0)
    if tag == "float" and _DECIMAL.fullmatch(written):
        number = float(written)
        if not math.isfinite(number):
            refuse(node, f"{written[:_SHOWN_CHARACTERS]} is too large for a number.")
        return number
    return written


def text(node: yaml.Node, what: str) -> str:
    """A text that is not blank, as it was written; a number by its digits."""
    if not isinstance(node, yaml.ScalarNode) or is_null(node) or not node.value.strip():
        refuse(node, f"Expected {what}, found {_kind(node)}.")
    return str(node.value)


def truth(node: yaml.Node, what: str) -> bool:
    """True or false."""
    value = scalar(node, f"true or false for {what}")
    if not isinstance(value, bool):
        refuse(node, f"Expected true or false for {what}, found {_kind(node)}.")
    return value


def items(node: yaml.Node) -> list[yaml.Node]:
    """The values of a list; anything else is a list of one."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else [node]


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a map"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "nothing" if is_null(node) or not node.value.strip() else repr(node.value[:_SHOWN_CHARACTERS])


class Entries:
    """The entries of a map, each of which is taken once; `left` are those that were not."""

    def __init__(self, node: yaml.Node, what: str) -> None:
        if not isinstance(node, yaml.MappingNode):
            refuse(node, f"Expected {what}, found {_kind(node)}.")
        self.node = node
        self.left: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                refuse(key, f"Expected a name, found {_kind(key)}.")
            name = str(key.value)
            if name in self.left:
                refuse(key, f"{name!r} is said twice, first in line {self.left[name][0].start_mark.line + 1}.")
            self.left[name] = (key, value)

    def take(self, name: str) -> yaml.Node | None:
        """The value of that name, or None where it is not there or null."""
        found = self.left.pop(name, None)
        return None if found is None or is_null(found[1]) else found[1]

    def need(self, name: str, what: str) -> yaml.Node:
        """The value of that name; a fault where there is none."""
        found = self.take(name)
        if found is None:
            refuse(self.node, f"{name!r} is missing: expected {what}.")
        return found

    def end(self, known: Sequence[str]) -> None:
        """A fault at the first entry that was not taken, with the nearest of the known names."""
        for name, (key, _) in self.left.items():
            refuse(key, unknown(name, known))


def unknown(name: str, known: Sequence[str]) -> str:
    """Words for a name that there is not."""
    near = get_close_matches(re.sub(r"[_-]", " ", name.lower()), known, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else f" Expected one of {', '.join(known)}."
    return f"There is no {name[:_SHOWN_CHARACTERS]!r} here.{hint}"
