"""Reads Sigma rule files one by one, and reports which rules are supported.

Rules that are left out of an import: there are no events of their log sources, or nothing tells which they are.

Rule collections of Sigma's first version: documents of a file that say what others share, by the key `action`.

`global` documents are merged into all that follow, until a `reset`; `repeat` is the document before it with changes.
What `global` says wins, as in pySigma.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.streams.rule_formats.sigma.conditions import detection_condition
from millstream.streams.rule_formats.sigma.correlations import aggregation, correlation, generates, rules_of
from millstream.streams.rule_formats.sigma.documents import MAX_FILE_BYTES, SigmaDocument, documents_of
from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.sigma.filters import RuleFilter, read_filter
from millstream.streams.rule_formats.sigma.log_sources import NoEvents, known_places, label_of, log_source_condition
from millstream.streams.rule_formats.sigma.mapping import EventMapping
from millstream.streams.rule_formats.sigma.registry_audit import audit_reading, by_reading
from millstream.streams.rule_formats.sigma.taxonomy import paths_of
from millstream.streams.rules.chains import unfit_chain
from millstream.streams.rules.conditions import OF_TWO_FIELDS, Truth, all_of, any_of, predicates_of
from millstream.streams.rules.imported_rules import AppliedFilter, ImportedRules, Refusal, SourceNote
from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule, RuleStatistics

__all__ = ["OmittedRules", "expand_collections", "read"]

_ACTIONS: Final = ("global", "reset", "repeat")
_APART: Final = ("correlation", "filter")
"""What has such a key is no rule, and shares nothing."""


MAX_COLLECTED_CHARACTERS: Final = 16 * 2**20
"""Characters of all documents of a file with what they share, at most: a file could share much with many."""


def expand_collections(documents: Iterable[SigmaDocument | Fault]) -> Iterator[SigmaDocument | Fault]:
    """The documents with what they share in each, without those that are only shared; faults stay in their places."""
    shared: SigmaDocument | None = None
    before: SigmaDocument | None = None
    ids: dict[str, int] = {}
    characters = 0
    for document in documents:
        if isinstance(document, Fault):
            yield document
            continue
        action = document.value.get("action")
        own = document.over({key: value for key, value in document.value.items() if key != "action"})
        if action == "global":
            shared = before = own if shared is None else own.over(_merge_maps(shared.value, own.value), shared)
        elif action == "reset":
            shared = None
        elif action == "repeat" and before is not None:
            before = own.over(_merge_maps(before.value, own.value), before)
            yield _with_own_id(before, own, ids)
        elif action is not None:
            yield Fault(_words(action), document.line("action"))
        elif any(key in document.value for key in _APART):
            yield document
        else:
            before = own if shared is None else own.over(_merge_maps(own.value, shared.value), shared)
            yield _with_own_id(before, own, ids)
        characters += len(document.text if before is None else before.text)
        if characters > MAX_COLLECTED_CHARACTERS:
            yield Fault(f"the documents have more than {MAX_COLLECTED_CHARACTERS:,} characters together", own.line())
            return


def _words(action: Any) -> str:
    if action == "repeat":
        return "there is no rule before it to repeat"
    near = difflib.get_close_matches(str(action), _ACTIONS, n=1)
    return f"no action {action!r} is known{f'; {near[0]!r} is' if near else ''}"


def _merge_maps(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, Any]:
    """Both in one; where both say something the second counts, but maps are merged."""
    merged = dict(first)
    for key, value in second.items():
        known = merged.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            value = _merge_maps(known, value)
        merged[key] = value
    return merged


def _with_own_id(document: SigmaDocument, own: SigmaDocument, ids: dict[str, int]) -> SigmaDocument:
    """With an id of its own: that of its document, else the shared one, which is numbered from its second use on."""
    name = own.value.get("id", document.value.get("id"))
    if name is None:
        return document
    used = ids[str(name)] = ids.get(str(name), 0) + 1
    if "id" not in own.value and used > 1:
        name = f"{name}-{used}"
    return document.over({**document.value, "id": name})


_CORRELATION: Final = "correlation"
"""Stands for the log source of what has none."""


class OmittedRules:
    """The rules by log source, and by what others call them; a correlation of one is left out as well."""

    def __init__(self) -> None:
        self.names: dict[str, NoEvents] = {}
        """Why each is left out, by id and by name."""
        self._sources: list[Mapping[Any, Any]] = []
        self._counts: Counter[tuple[str, bool]] = Counter()

    def add(self, told: Mapping[Any, Any], why: NoEvents) -> None:
        """Take a rule's document in."""
        self.names.update((name, why) for name in (told.get("id"), told.get("name")) if isinstance(name, str))
        source = told.get("logsource")
        if isinstance(source, Mapping):
            self._sources.append(source)
            self._counts[label_of(source), why.unmapped] += 1
        else:
            self._counts[_CORRELATION, why.unmapped] += 1

    def any_of(self, one: RuleFilter) -> bool:
        """Whether a filter would be for one of the rules."""
        return any(one.fits(source) for source in self._sources)

    def notes(self) -> Iterator[SourceNote]:
        """How many there are of each log source."""
        for (label, unmapped), count in sorted(self._counts.items()):
            yield SourceNote(label, count, "", unmapped)


LEVELS: Final = ("informational", "low", "medium", "high", "critical")
_Maker = Callable[[Path, int, SigmaDocument], Rule]
_SUFFIXES: Final = frozenset((".yml", ".yaml"))
_LICENSE: Final = re.compile(r"Detection Rule License(?: \(DRL\))? ([0-9.]*[0-9])")


def read(places: Iterable[Path], mapping: EventMapping | None = None) -> ImportedRules:
    """The rules below the places; see `read_rules`."""
    reading = _Reading(mapping or EventMapping())
    # Python's `re` warns of expressions that it might read otherwise one day, on the user's terminal.
    with warnings.catch_warnings(action="ignore"):
        for path in sorted({file for place in places for file in _files(place)}):
            reading.add_file(path)
        return reading.finish()


def _files(place: Path) -> Iterator[Path]:
    """A file itself, the rule files below a directory (hidden ones apart), or a place where there is nothing."""
    if not place.is_dir():
        yield place
        return
    for path in place.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(place).parts)
        if path.suffix in _SUFFIXES and not hidden and path.is_file():
            yield path


class _Reading:
    """What was read so far. Correlations wait for the end: the rules that they name may come in later files."""

    def __init__(self, mapping: EventMapping) -> None:
        self._mapping = mapping
        self._rules: dict[str, Rule] = {}
        self._places: dict[str, tuple[Path, int]] = {}
        self._lines: dict[str, int] = {}
        self._by_name: dict[str, str] = {}
        self._correlations: list[tuple[Path, int, SigmaDocument]] = []
        self._refused: list[tuple[Path, Refusal]] = []
        self._silent: set[str] = set()
        self._sources: dict[str, Mapping[Any, Any]] = {}
        self._filters: list[RuleFilter] = []
        self._filtered: list[AppliedFilter] = []
        self._looks_at: dict[str, str] = {}
        self._audited: set[str] = set()
        self._left_out = OmittedRules()

    def add_file(self, path: Path) -> None:
        """Read the rules of one file."""
        try:
            found = list(expand_collections(documents_of(_text(path))))
        except Fault as fault:
            self._refuse(path, fault)
            return
        for number, document in enumerate(found):
            if isinstance(document, Fault):
                self._refuse(path, document)
            elif "correlation" in document.value:
                self._correlations.append((path, number, document))
            elif "filter" in document.value:
                self._take_filter(path, document)
            else:
                accepted = self._take(path, number, document, self._detection_rule)
                if accepted is not None:
                    self._sources[accepted.id] = document.value["logsource"]
        if not found:
            self._refuse(path, Fault("the file has no rule"))

    def finish(self) -> ImportedRules:
        """Put the filters into their rules, read the correlations, and give all in the order of their places."""
        for one in self._filters:
            self._apply_filter(one)
        names = self._names_of_correlations()
        chained = [one for one in self._correlations if names.intersection(_parts(one[2]))]
        for path, number, document in (*(one for one in self._correlations if one not in chained), *chained):
            if self._take(path, number, document, self._correlation_rule) and not generates(document):
                self._silent |= {self._by_name[name] for name in rules_of(document)}
        ordered = sorted(self._rules.values(), key=lambda rule: self._places[rule.id])
        rules = tuple(msgspec.structs.replace(one, alerts=False) if one.id in self._silent else one for one in ordered)
        refused = sorted(self._refused, key=lambda one: (one[0], one[1].line or 0))
        places: dict[str, tuple[str, int | None]] = {
            rule.id: (str(self._places[rule.id][0]), self._lines[rule.id]) for rule in rules
        }
        reasons = tuple(one for _, one in refused)
        return ImportedRules(
            rules, reasons, self._paths(rules), places, tuple(self._filtered), tuple(self._source_notes())
        )

    def _source_notes(self) -> Iterator[SourceNote]:
        """At which events rules look whose log source has no sign, and the rules that were left out."""
        signless = ((label_of(source), self._looks_at[name]) for name, source in self._sources.items())
        for (label, looks_at), count in sorted(Counter(signless).items()):
            if looks_at:
                yield SourceNote(label, count, looks_at)
        yield from self._left_out.notes()

    def _take(self, path: Path, number: int, document: SigmaDocument, make: _Maker) -> Rule | None:
        try:
            made = make(path, number, document)
            if made.id in self._rules:
                other = self._places[made.id][0]
                raise Fault(f"its id is that of a rule in {other}", document.line("id"))
        except NoEvents as why:
            self._left_out.add(document.value, why)
            return None
        except Fault as fault:
            self._refuse(path, Fault(fault.reason, fault.line or document.line()))
            return None
        except RecursionError:
            self._refuse(path, Fault("the rule is nested too deeply", document.line()))
            return None
        self._rules[made.id] = made
        self._places[made.id] = (path, number)
        self._lines[made.id] = document.line() or 1
        for name in (made.id, document.value.get("name")):
            if isinstance(name, str):
                self._by_name.setdefault(name, made.id)
        return made

    def _take_filter(self, path: Path, document: SigmaDocument) -> None:
        try:
            self._filters.append(read_filter(path, document, self._mapping.placeholders))
        except Fault as fault:
            self._refuse(path, Fault(fault.reason, fault.line or document.line()))
        except RecursionError:
            self._refuse(path, Fault("the filter is nested too deeply", document.line()))

    def _apply_filter(self, one: RuleFilter) -> None:
        """Make a filter part of its rules, and tell which of them it cannot be part of."""
        if one.names is None:
            ids = [name for name, source in self._sources.items() if one.fits(source)]
            if not ids and not self._left_out.any_of(one):
                self._refuse(one.path, Fault("no rule that was read with the filter has its log source", one.line))
        else:
            ids = []
            for name in one.names:
                if name in self._left_out.names:
                    continue
                reason = self._wrong_rule(name, one)
                if reason:
                    self._refuse(one.path, Fault(reason, one.names_line))
                else:
                    ids.append(self._by_name[name])
        for name in dict.fromkeys(ids):
            rule = self._rules[name]
            read_condition = one.condition
            if name in self._audited:
                read_condition = by_reading(read_condition, audit_reading(read_condition))
            held = all_of(rule.condition, read_condition)
            self._rules[name] = msgspec.structs.replace(rule, condition=held, filters=(*rule.filters, one.title))
        if ids:
            self._filtered.append(AppliedFilter(one.title, str(one.path), one.line, tuple(dict.fromkeys(ids))))

    def _wrong_rule(self, name: str, one: RuleFilter) -> str:
        if name not in self._by_name:
            if name in self._names_of_correlations():
                return f"{name!r} is a correlation; a filter is for the rules that it counts"
            return f"no rule {name!r} was read with the filter"
        if not one.fits(self._sources[self._by_name[name]]):
            return f"the rule {name!r} has another log source than the filter"
        return ""

    def _names_of_correlations(self) -> set[str]:
        values = (document.value.get(key) for _, _, document in self._correlations for key in ("id", "name"))
        return {value for value in values if isinstance(value, str)}

    def _paths(self, rules: Iterable[Rule]) -> dict[str, tuple[FieldPath, ...]]:
        usual = paths_of(_fields(rules))
        own = self._mapping.fields
        return {
            name: tuple(dict.fromkeys((*own.get(name, ()), *(known_places(name) or places))))
            for name, places in usual.items()
        }

    def _refuse(self, path: Path, fault: Fault) -> None:
        self._refused.append((path, Refusal(str(path), fault.reason, fault.line)))

    def _detection_rule(self, path: Path, number: int, document: SigmaDocument) -> Rule:
        source, detection = document.value.get("logsource"), document.value.get("detection")
        if not isinstance(detection, Mapping):
            raise Fault("a rule needs a map `detection`, or `correlation`", document.line("detection"))
        if not isinstance(source, Mapping):
            raise Fault("a rule needs a map `logsource`", document.line("logsource"))
        try:
            where = log_source_condition(source, self._mapping)
        except Fault as fault:
            raise Fault(fault.reason, document.line("logsource")) from None
        conditions, statistics = _conditions(document, detection.get("condition"))
        combined = detection_condition(document, conditions, self._mapping.placeholders)
        condition = all_of(where.condition, combined)
        of_audit = audit_reading(combined) if where.audited != Truth(False) else Truth(False)
        if of_audit != Truth(False):
            condition = all_of(any_of(where.condition, where.audited), by_reading(combined, of_audit))
        if isinstance(condition, Truth):
            raise Fault("the condition does not depend on the event", document.line("detection", "condition"))
        made = _rule(path, number, document, condition, statistics)
        self._looks_at[made.id] = where.looks_at
        if of_audit != Truth(False):
            self._audited.add(made.id)
        return made

    def _correlation_rule(self, path: Path, number: int, document: SigmaDocument) -> Rule:
        line = document.line("correlation", "rules")
        parts: dict[str, Rule] = {}
        for name in rules_of(document):
            if name not in self._by_name:
                if name in self._left_out.names:
                    raise self._left_out.names[name]
                if name in self._names_of_correlations():
                    raise Fault(f"the correlation {name!r} was not taken, or is one of correlations itself", line)
                raise Fault(f"no rule {name!r} was read", line)
            part = self._rules[self._by_name[name]]
            if part in parts.values():
                raise Fault(f"{name!r} is one of the rules a second time", line)
            parts[name] = part
        counted = correlation(document, parts, self._by_name)
        links = [part for part in parts.values() if part.statistics is not None]
        if links:
            unfit = unfit_chain(counted, links, self._rules)
            if unfit:
                raise Fault(unfit, line)
            counted = msgspec.structs.replace(counted, parts=tuple(part.id for part in parts.values()))
        return _rule(path, number, document, any_of(*(part.condition for part in parts.values())), counted)


def _parts(document: SigmaDocument) -> tuple[str, ...]:
    """The names of a correlation's rules, as far as they can be read."""
    try:
        return rules_of(document)
    except Fault:
        return ()


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Fault(f"the file cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise Fault(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Fault("the file is not UTF-8", content.count(b"\n", 0, error.start) + 1) from None


def _conditions(document: SigmaDocument, condition: Any) -> tuple[list[str], RuleStatistics | None]:
    conditions = condition if isinstance(condition, list) else [condition]
    if not conditions or not all(isinstance(one, str) for one in conditions):
        raise Fault("the condition must be a text or a list of texts", document.line("detection", "condition"))
    if not any("|" in one for one in conditions):
        return conditions, None
    if len(conditions) > 1:
        raise Fault("a list of conditions cannot have aggregations", document.line("detection", "condition"))
    held, statistics = aggregation(document, conditions[0])
    return [held], statistics


def _rule(path: Path, number: int, document: SigmaDocument, condition: Any, statistics: RuleStatistics | None) -> Rule:
    fields = document.value
    title = fields.get("title")
    if not isinstance(title, str) or not title.strip():
        raise Fault("a rule needs a title", document.line("title"))
    level = fields.get("level", "medium")
    if level not in LEVELS:
        raise Fault(f"{level!r} is no level; {', '.join(LEVELS)} are", document.line("level"))
    own = fields.get("id") or fields.get("name") or (path.stem if number == 0 else f"{path.stem}-{number + 1}")
    return Rule(
        id=str(own),
        title=title.strip(),
        condition=condition,
        kind="sigma",
        level=level,
        tags=_texts(fields.get("tags")),
        author=", ".join(_texts(fields.get("author"))),
        license=str(fields.get("license") or _license_beside(path.parent)),
        shows=_texts(fields.get("fields")),
        statistics=statistics,
        text=document.text,
    )


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in (told if isinstance(told, list) else [] if told is None else [told]))


@lru_cache(maxsize=1_024)
def _license_beside(directory: Path) -> str:
    """The Detection Rule License that a file LICENSE in the directory, or one above it, puts the rules under."""
    for above in (directory, *directory.absolute().parents):
        for name in ("LICENSE", "LICENSE.md", "LICENSE.Detection.Rules.md"):
            try:
                found = _LICENSE.search((above / name).read_text("utf-8", errors="replace"))
            except OSError:
                continue
            if found is not None:
                return f"Detection Rule License {found[1]}"
    return ""


def _fields(rules: Iterable[Rule]) -> Iterator[str]:
    """All fields that the rules look at, count by or show."""
    for rule in rules:
        yield from rule.shows
        for predicate in predicates_of(rule.condition):
            yield predicate.field
            if predicate.op in OF_TWO_FIELDS:
                yield str(predicate.operands[0])
        if rule.statistics is not None:
            counted, aliases = rule.statistics, rule.statistics.aliases
            named = {name for name in (*counted.by, *counted.measure.fields) if name not in aliases}
            yield from named.union(*(fields.values() for fields in aliases.values()))
