"""Loads rules from files and directories: Sigma YAML, our own YAML, and SQL statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from millstream.model.errors import ExtraMissing
from millstream.streams.errors import RuleError
from millstream.streams.rules.imported_rules import AppliedFilter, ImportedRules, Refusal, SourceNote
from millstream.streams.rules.rule import Path as FieldPath
from millstream.streams.rules.rule import Rule

if TYPE_CHECKING:
    from millstream.streams.rule_formats.sigma.mapping import EventMapping

__all__ = ["SigmaEvents", "log_source_of", "read_rule_files"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one file of rules."""

_YAML: Final = (".yml", ".yaml")
_SUFFIXES: Final = (*_YAML, ".sql")
_SOURCE_KEYS: Final = ("product", "category", "service")
_SOURCE_WORD = re.compile(r"[\w./ -]+")
_SIGMA_KEYS = re.compile(r"(?m)^(?:detection|correlation|filter|logsource)[ ]*:")


def log_source_of(text: str) -> dict[str, str]:
    """The words of a log source such as `product=aws,service=cloudtrail`. Raises ValueError for another text."""
    words: dict[str, str] = {}
    for part in text.split(","):
        key, _, word = part.strip().partition("=")
        if key not in _SOURCE_KEYS or key in words or not _SOURCE_WORD.fullmatch(word):
            raise ValueError(text)
        words[key] = word
    return words


class SigmaEvents(msgspec.Struct, frozen=True):
    """What an import says of the events that Sigma's rules are to judge.

    `mapping` is a file that says where the events of log sources and fields are, `placeholders` one with the values of
    placeholders, which count before the mapping's. With `log_sources` (the words of each) all events are of one of
    these, and rules for others are left out; so are rules for log sources that nothing tells, unless these
    `unmapped_judge_everything`.
    """

    mapping: Path | None = None
    log_sources: tuple[Mapping[str, str], ...] = ()
    placeholders: Path | None = None
    unmapped_judge_everything: bool = False


def read_rule_files(places: Iterable[Path], events: SigmaEvents | None = None) -> ImportedRules:
    """The rules of the files, and of all files of rules below the directories, hidden ones apart; Sigma's come first.

    What cannot be taken is told with its place and stops nothing else; so are a directory without files of rules and a
    file without rules. Raises RULE_FILE where a place does not exist or no place has a file of rules, ExtraMissing
    without the packages that read them.
    """
    files_of = {place: list(_files_of(place)) for place in places}
    without = [place for place, files in files_of.items() if not files]
    if without and len(without) == len(files_of):
        raise RuleError("RULE_FILE", _without_files(without[0]))
    sigma: list[Path] = []
    found = [ImportedRules(passed_over=(Refusal(str(place), _without_files(place)),)) for place in without]
    for file in dict.fromkeys(file for files in files_of.values() for file in files):
        content = _content(file)
        if isinstance(content, Refusal):
            found.append(ImportedRules(refused=(content,)))
        elif _SIGMA_KEYS.search(content) and file.suffix.lower() in _YAML:
            sigma.append(file)
        else:
            found.append(_note_empty(_read(content, file), file))
    return _join_parts([*([_read_sigma(sigma, events or SigmaEvents())] if sigma else []), *found])


def _files_of(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from sorted(file for file in place.rglob("*") if _is_rules(file, place))
    elif not place.exists():
        raise RuleError("RULE_FILE", f"There is no file or directory {place}.")
    elif place.suffix.lower() not in _SUFFIXES:
        raise RuleError("RULE_FILE", f"The file {place} is none of {', '.join(_SUFFIXES)}.")
    else:
        yield place


def _without_files(directory: Path) -> str:
    return f"The directory {directory} has no files of rules ({', '.join(_SUFFIXES)})."


def _is_rules(file: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix.lower() in _SUFFIXES and not hidden and file.is_file()


def _content(file: Path) -> str | Refusal:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            return Refusal(str(file), f"The file is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB.")
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.read_bytes().count(b"\n", 0, error.start) + 1
        return Refusal(str(file), "The file is no UTF-8 text.", line)
    except OSError as error:
        return Refusal(str(file), f"The file cannot be read: {error.strerror}.")


def _read(content: str, file: Path) -> ImportedRules:
    return (_read_sql if file.suffix.lower() == ".sql" else _read_yaml)(content, str(file))


def _note_empty(found: ImportedRules, file: Path) -> ImportedRules:
    """The same, with the file as passed over where nothing came of it: it is empty, or has comments alone."""
    if found.rules or found.refused or found.paths:
        return found
    return ImportedRules(passed_over=(Refusal(str(file), "The file has no rule."),))


def _read_yaml(content: str, path: str) -> ImportedRules:
    try:
        from millstream.streams.rule_formats.yaml.form import read_yaml_rules
    except ModuleNotFoundError as error:
        raise ExtraMissing("Reading rules in YAML", error.name, extra="streams") from None
    return read_yaml_rules(content, path)


def _read_sql(content: str, path: str) -> ImportedRules:
    try:
        from millstream.streams.rule_formats.sql_form import read_sql_rules
    except ModuleNotFoundError as error:
        raise ExtraMissing("Reading rules in SQL", error.name, extra="streams") from None
    return read_sql_rules(content, path)


def _read_sigma(files: list[Path], events: SigmaEvents) -> ImportedRules:
    from millstream.streams.rule_formats.sigma import read_rules

    found = read_rules(files, _mapping(events))
    refused = tuple(Refusal(one.path, _sentence(one.reason), one.line) for one in found.refused)
    return msgspec.structs.replace(found, refused=refused)


def _mapping(events: SigmaEvents) -> EventMapping:
    try:
        from millstream.streams.rule_formats.sigma.mapping import EventMapping, read_mapping, read_placeholders
    except ModuleNotFoundError as error:
        raise ExtraMissing("Reading a mapping of events", error.name, extra="streams") from None
    mapping = EventMapping() if events.mapping is None else read_mapping(events.mapping)
    placeholders = {} if events.placeholders is None else read_placeholders(events.placeholders)
    return msgspec.structs.replace(
        mapping,
        placeholders=mapping.placeholders | placeholders,
        events_of=tuple(map(dict, events.log_sources)),
        unmapped_judge_everything=events.unmapped_judge_everything,
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _join_parts(parts: Iterable[ImportedRules]) -> ImportedRules:
    rules: dict[str, Rule] = {}
    refused: list[Refusal] = []
    paths: dict[str, tuple[FieldPath, ...]] = {}
    places: dict[str, tuple[str, int | None]] = {}
    filters: list[AppliedFilter] = []
    sources: list[SourceNote] = []
    passed_over: list[Refusal] = []
    for part in parts:
        refused += part.refused
        filters += part.filters
        sources += part.sources
        passed_over += part.passed_over
        paths |= part.paths
        for rule in part.rules:
            place = part.places.get(rule.id, ("", None))
            if rule.id in rules:
                first = places[rule.id][0] or "another file"
                refused.append(Refusal(place[0], f"The id {rule.id!r} is taken by a rule of {first}.", place[1]))
                continue
            rules[rule.id], places[rule.id] = rule, place
    return ImportedRules(
        tuple(rules.values()), tuple(refused), paths, places, tuple(filters), tuple(sources), tuple(passed_over)
    )
