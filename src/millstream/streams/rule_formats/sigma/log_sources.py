"""Conditions for a rule's log source, from the site's mapping or the built-in one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from millstream.streams.rule_formats.sigma.fault import Fault
from millstream.streams.rule_formats.sigma.mapping import EventMapping, read_mapping
from millstream.streams.rule_formats.sigma.registry_audit import audit_condition
from millstream.streams.rule_formats.sigma.taxonomy import (
    ALIKE,
    LINUX_SYSMON,
    WINDOWS_CATEGORIES,
    channel_is,
    knows_service,
    sysmon_condition,
    windows_condition,
)
from millstream.streams.rule_formats.sigma.values import either
from millstream.streams.rules.conditions import Condition, Op, Predicate, Truth, all_of, any_of, negate
from millstream.streams.rules.rule import Path as FieldPath

__all__ = [
    "ANY_OTHER",
    "ANY_WINDOWS",
    "NO_WINDOWS_LOG",
    "NoEvents",
    "SourceCondition",
    "known_condition",
    "known_places",
    "label_of",
    "log_source_condition",
]


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


ANY_OTHER: Final = "every event that is no record of a Windows event log"
ANY_WINDOWS: Final = "every record of a Windows event log"

_KEYS: Final = ("product", "category", "service")
_ANY_WINDOWS_LOG: Final = negate(NO_WINDOWS_LOG)

_PRODUCTS: Final = (
    "windows", "linux", "macos", "aws", "azure", "bitbucket", "cisco", "django", "fortigate", "gcp", "github",
    "google_workspace", "huawei", "juniper", "jvm", "kubernetes", "m365", "modsecurity", "nodejs", "okta", "onelogin",
    "opencanary", "paloalto", "python", "rpc_firewall", "ruby_on_rails", "spring", "sql", "velocity", "zeek",
)  # fmt: skip
_CATEGORIES: Final = ("antivirus", "application", "database", "dns", "firewall", "proxy", "webserver")
"""Words of Sigma's taxonomy 2.1.0 beside those of Windows. Others are taken too, but for misspellings of these."""


class NoEvents(Exception):
    """No event is one of the log source: the import says so, or nothing says which are (`unmapped`)."""

    def __init__(self, *, unmapped: bool) -> None:
        super().__init__("no mapping" if unmapped else "another log source")
        self.unmapped = unmapped


class SourceCondition(NamedTuple):
    """What an event of a log source must be; `looks_at` says at which events its rules look for want of a sign.

    Events that are `audited` are of the log source as well, with the same in other fields (`registry_audit`).
    """

    condition: Condition
    looks_at: str = ""
    audited: Condition = Truth(False)


def label_of(source: Mapping[Any, Any]) -> str:
    """The log source in a few letters, as in `aws/cloudtrail`."""
    return "/".join(_words(source).values())


def log_source_condition(source: Mapping[Any, Any], mapping: EventMapping) -> SourceCondition:
    """What an event of the log source must be. Raises NoEvents where its rules judge nothing.

    Raises Fault for words that look like misspelt ones, or for none.
    """
    for key in _KEYS:
        if source.get(key) is not None and not isinstance(source[key], str):
            raise Fault(f"the {key} {source[key]!r} is no text")
    words = _words(source)
    if not words:
        raise Fault("the log source names neither product nor category nor service")
    given = [one for one in mapping.events_of if _is_within(one, words) or _is_within(words, one)]
    if mapping.events_of and not given:
        raise NoEvents(unmapped=False)
    mapped = mapping.condition(source)
    if mapped is not None:
        return SourceCondition(mapped)
    if any(_is_within(words, one) for one in given):
        return SourceCondition(Truth(True))
    known = _windows(**words)
    if given:
        return SourceCondition(_among_given(words, known), audited=_audit(**words))
    if known is not None:
        return SourceCondition(
            known, ANY_WINDOWS if known == _ANY_WINDOWS_LOG and len(words) > 1 else "", _audit(**words)
        )
    known = _other(**words)
    if known is not None:
        return SourceCondition(known, audited=_audit(**words))
    if not mapping.unmapped_judge_everything:
        raise NoEvents(unmapped=True)
    return SourceCondition(NO_WINDOWS_LOG, ANY_OTHER)


def _among_given(words: Mapping[str, str], windows: Condition | None) -> Condition:
    """The same among events that are all of a wider log source: each of them where nothing tells them apart."""
    if windows is not None:
        return Truth(True) if windows == _ANY_WINDOWS_LOG else windows
    sysmon = _sysmon(**words)
    return Truth(True) if sysmon is None else any_of(sysmon, NO_WINDOWS_LOG)


def _words(source: Mapping[Any, Any]) -> dict[str, str]:
    return {key: str(source[key]) for key in _KEYS if source.get(key) is not None}


def _is_within(words: Mapping[str, str], of: Mapping[str, str]) -> bool:
    return words.items() <= of.items()


def _windows(product: str | None = None, category: str | None = None, service: str | None = None) -> Condition | None:
    # Services alone are those of Windows, as in the older forms of the taxonomy.
    if product == "windows" or (product is None and service is not None and knows_service(service)):
        return windows_condition(category, service)
    return None


def _audit(product: str | None = None, category: str | None = None, service: str | None = None) -> Condition:
    return audit_condition(category, service) if product in (None, "windows") else Truth(False)


def _sysmon(product: str | None = None, category: str | None = None, service: str | None = None) -> Condition | None:
    """Events of a category that Sysmon writes: for Linux, and of Windows where there is no product."""
    if product not in (None, "linux") or category not in WINDOWS_CATEGORIES:
        return None
    of_linux = sysmon_condition(category, LINUX_SYSMON)
    return of_linux if product else any_of(windows_condition(category, None), of_linux)


def _other(product: str | None = None, category: str | None = None, service: str | None = None) -> Condition | None:
    if product is not None:
        _check_spelling("product", product, _PRODUCTS)
    elif category is not None:
        _check_spelling("category", category, (*WINDOWS_CATEGORIES, *_CATEGORIES))
    words = {"product": product, "category": category, "service": service}
    sysmon = _sysmon(**words)
    if sysmon is not None:
        return sysmon
    known = known_condition({key: word for key, word in words.items() if word is not None})
    is_linux = product == "linux" and (service == "sysmon" or (category is None and service is None))
    parts = [*([known] if known is not None else ()), *([channel_is(LINUX_SYSMON)] if is_linux else ())]
    return any_of(*parts) if parts else None


def _check_spelling(kind: str, word: str, known: Iterable[str]) -> None:
    names = tuple(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=ALIKE)
    if near and _letters(word) != _letters(near[0]):
        raise Fault(f"no {kind} {word!r} is known; {near[0]!r} is")


def _letters(word: str) -> str:
    """The word, however its parts are joined."""
    return "".join(filter(str.isalnum, word.lower()))
