"""Rules in our own YAML form: one or many in a file, as a document each, a list, or a list under `rules`.

docs/rules.md is its reference. A rule that cannot be taken is told with its place and stops no other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from millstream.streams.rule_formats.yaml.conditions import condition_of
from millstream.streams.rule_formats.yaml.statistics import MEASURES, statistics_of
from millstream.streams.rule_formats.yaml_document import (
    Entries,
    YamlFault,
    documents,
    items,
    refuse,
    text,
    truth,
    unknown,
)
from millstream.streams.rules.conditions import Truth, predicates_of
from millstream.streams.rules.imported_rules import ImportedRules, Refusal, dotted_paths
from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule

__all__ = ["LEVELS", "read_yaml_rules"]

LEVELS: Final = ("informational", "low", "medium", "high", "critical")
"""How much a rule's hits matter, least first."""

_KEYS = (
    "rule", "title", "level", "tags", "author", "license", "enabled", "alerts", "caseless", "shows", "when",
    *MEASURES,
)  # fmt: skip
_ID = re.compile(r"[\w.:/@+-]{1,200}")
_START = re.compile(r"(?m)^(?:---|[ ]*-[ ]+rule[ ]*:|rule[ ]*:)")


def read_yaml_rules(content: str, path: str) -> ImportedRules:
    """The rules of a file's text; `path` is its name in what is refused."""
    reading = _Reading(path, content.splitlines())
    try:
        nodes = list(documents(content))
    except YamlFault as fault:
        reading.read_parts(content, fault)
    else:
        for node in nodes:
            reading.read(node)
    return ImportedRules(tuple(reading.rules), tuple(reading.refused), reading.paths, reading.places)


@dataclass
class _Reading:
    path: str
    lines: list[str]
    rules: list[Rule] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    paths: dict[str, tuple[FieldPath, ...]] = field(default_factory=dict)
    places: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def read_parts(self, content: str, fault: YamlFault) -> None:
        """What is no YAML as a whole, rule by rule: the faulty one is told and the others are read."""
        starts = [match.start() for match in _START.finditer(content)]
        if len(starts) < 2:
            return self._refuse(fault)
        for start, end in zip(starts, [*starts[1:], len(content)], strict=True):
            # Blank lines in front keep the numbers of the lines.
            part = "\n" * content.count("\n", 0, start) + content[start:end].removeprefix("---")
            try:
                nodes = list(documents(part))
            except YamlFault as inner:
                self._refuse(inner)
            else:
                for node in nodes:
                    self.read(node)
        return None

    def read(self, node: yaml.Node) -> None:
        """A document: a rule, a list of rules, or a map with the list and where the fields are."""
        try:
            if isinstance(node, yaml.SequenceNode):
                self._read_list(node)
            elif isinstance(node, yaml.MappingNode) and any(key.value in ("rules", "fields") for key, _ in node.value):
                entries = Entries(node, "a map with rules")
                fields = entries.take("fields")
                if fields is not None:
                    self.paths.update(_paths(fields))
                listed = entries.take("rules")
                entries.end(("fields", "rules"))
                if listed is not None:
                    self._read_list(listed)
            else:
                self._read_rule(node)
        except YamlFault as fault:
            self._refuse(fault)

    def _read_list(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.SequenceNode):
            refuse(node, "Expected a list of rules, each of which begins with '- rule: ID'.")
        for one in node.value:
            self._read_rule(one)

    def _read_rule(self, node: yaml.Node) -> None:
        try:
            rule = _rule(node, self._text(node))
            if rule.id in self.places:
                refuse(node, f"The file has two rules with the id {rule.id!r}; the first one is taken.")
        except YamlFault as fault:
            self._refuse(fault)
            return
        self.rules.append(rule)
        self.places[rule.id] = (self.path, node.start_mark.line + 1)
        for name in _fields_of(rule):
            if "." in name and name not in self.paths:
                self.paths[name] = dotted_paths(name)

    def _text(self, node: yaml.Node) -> str:
        # A block ends where the next thing begins, which may be within a line.
        end = node.end_mark
        last = [line[: end.column] for line in self.lines[end.line : end.line + 1]]
        return "\n".join([*self.lines[node.start_mark.line : end.line], *last]).rstrip() + "\n"

    def _refuse(self, fault: YamlFault) -> None:
        self.refused.append(Refusal(self.path, fault.reason, fault.line, fault.column))


def _fields_of(rule: Rule) -> Iterator[str]:
    yield from (predicate.field for predicate in predicates_of(rule.condition))
    yield from rule.shows
    if rule.statistics is not None:
        yield from (*rule.statistics.by, *rule.statistics.measure.fields)


def _paths(node: yaml.Node) -> dict[str, tuple[FieldPath, ...]]:
    entries = Entries(node, "a map of fields and where events hold them")
    return {
        name: tuple(tuple(text(one, "a path such as process.name").split(".")) for one in items(value))
        for name, (_, value) in entries.left.items()
    }


def _rule(node: yaml.Node, written: str) -> Rule:
    entries = Entries(node, "a rule, which is a map that begins with 'rule: ID'")
    named = entries.need("rule", "the rule's id")
    name = text(named, "the rule's id")
    if not _ID.fullmatch(name):
        refuse(named, f"{name[:60]!r} is no id: use letters, digits and _ . : / @ + -, at most 200.")
    caseless = entries.take("caseless")
    ignore_case = caseless is not None and truth(caseless, "caseless")
    statistics = statistics_of(entries)
    when = entries.take("when")
    if when is None and (statistics is None or not statistics.parts):
        refuse(node, "'when' is missing: expected the rule's condition.")
    if when is not None and statistics is not None and statistics.parts:
        refuse(when, "A rule that counts the events of other rules has no condition of its own.")
    rule = Rule(
        id=name,
        title=_text_of(entries, "title", name),
        condition=Truth(False) if when is None else condition_of(when, caseless=ignore_case),
        kind="yaml",
        level=_level(entries.take("level")),
        tags=_texts(entries.take("tags"), "a tag"),
        author=_text_of(entries, "author"),
        license=_text_of(entries, "license"),
        shows=_texts(entries.take("shows"), "the name of a field"),
        statistics=statistics,
        enabled=_truth_of(entries, "enabled"),
        text=written,
        alerts=_truth_of(entries, "alerts"),
    )
    entries.end(_KEYS)
    return rule


def _text_of(entries: Entries, name: str, otherwise: str = "") -> str:
    node = entries.take(name)
    return otherwise if node is None else text(node, f"a text for {name}")


def _truth_of(entries: Entries, name: str) -> bool:
    node = entries.take(name)
    return True if node is None else truth(node, name)


def _texts(node: yaml.Node | None, what: str) -> tuple[str, ...]:
    return () if node is None else tuple(dict.fromkeys(text(one, what) for one in items(node)))


def _level(node: yaml.Node | None) -> str:
    if node is None:
        return "medium"
    level = text(node, "a level").lower()
    if level not in LEVELS:
        refuse(node, unknown(level, LEVELS))
    return level
