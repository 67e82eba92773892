"""Rule files as documents with line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml
from sigma.exceptions import SigmaError
from sigma.rule.base import check_alias_expansion

from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.yaml_document import TooDeep, line_of, read_nodes

__all__ = ["MAX_FILE_BYTES", "SigmaDocument", "documents_of"]

MAX_FILE_BYTES: Final = 1 << 20
"""Bytes of a file of Sigma rules, at most; the largest known has 300,000."""

_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


class SigmaDocument:
    """One YAML document: `value` as Python objects, `text` as it was written, `line` of any key; lines from 1."""

    def __init__(self, value: dict[Any, Any], text: str, *nodes: yaml.Node) -> None:
        self.value = value
        self.text = text
        self._nodes = nodes

    def over(self, value: dict[Any, Any], other: SigmaDocument | None = None) -> SigmaDocument:
        """The same with another value, which may be made of what `other` says, too."""
        if other is None:
            return SigmaDocument(value, self.text, *self._nodes)
        first, second = sorted((self, other), key=lambda one: one.line() or 0)
        return SigmaDocument(value, f"{first.text}---\n{second.text}", *self._nodes, *other._nodes)

    def line(self, *keys: Any) -> int | None:
        """The line of the key, or of the last of the keys down to it that is there."""
        return max((line_of(node, keys) for node in self._nodes), key=lambda one: one[0])[1]


def documents_of(text: str) -> Iterator[SigmaDocument | Fault]:
    """The documents of a file in its order; a Fault in the place of one that is no map, and of all behind bad YAML."""
    lines = text.splitlines(keepends=True)
    nodes, fault = _nodes_of(text)
    begins = [0, *(node.start_mark.line for node in nodes[1:]), len(lines)]
    for node, begin, end in zip(nodes, begins, begins[1:], strict=False):
        written = "".join(lines[begin:end])
        yield _document(node, written.removesuffix("---\n") if len(nodes) > 1 else written)
    if fault is not None:
        yield fault


def _nodes_of(text: str) -> tuple[list[yaml.Node], Fault | None]:
    nodes: list[yaml.Node] = []
    try:
        for node in read_nodes(text):
            nodes.append(node)  # noqa: PERF402 - those before a fault count
    except TooDeep as deep:
        return nodes, Fault("the YAML is nested too deeply", deep.line)
    except yaml.YAMLError as error:
        return nodes, _bad_yaml(error)
    return nodes, None


def _bad_yaml(error: yaml.YAMLError) -> Fault:
    mark = getattr(error, "problem_mark", None)
    words = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    return Fault(f"no YAML: {words}", None if mark is None else mark.line + 1)


def _document(node: yaml.Node, text: str) -> SigmaDocument | Fault:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        return Fault("a rule is a map of keys and values", line)
    fault = _bad_key(node)
    if fault is not None:
        return fault
    constructor = yaml.constructor.SafeConstructor()
    try:
        value = constructor.construct_document(node)
        check_alias_expansion(value)
    except SigmaError as error:
        return Fault(f"no YAML that is taken: {error}", line)
    except yaml.YAMLError as error:
        return _bad_yaml(error)
    except (ValueError, RecursionError) as error:
        return Fault(f"no YAML: {error}", line)
    return SigmaDocument(value, text, node)


def _bad_key(root: yaml.Node) -> Fault | None:
    """The first key that cannot stand in its map: the second of a name would silently replace the first."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
            continue
        names: set[str] = set()
        for name, value in node.value:
            line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                return Fault("a list or a map cannot be a key", line)
            if name.tag == _MERGE_TAG:
                return Fault("maps cannot be merged by <<", line)
            if name.value in names:
                return Fault(f"the key {name.value!r} stands twice in one map", line)
            names.add(name.value)
            waiting.append(value)
    return None
