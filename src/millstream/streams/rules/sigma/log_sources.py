"""What an event of a rule's log source must be.

A site's mapping comes first, and what an import says of all events. Windows has channels and ids of events
(`taxonomy`). Everything else has no sign that all recorders write, so its rules look at whatever is no record of a
Windows event log; so do rules for Windows at all of those where their words are not known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from millstream.streams.rules.atoms import Atom, Op
from millstream.streams.rules.formulas import Formula, Truth, any_of, negated
from millstream.streams.rules.sigma.fault import Fault
from millstream.streams.rules.sigma.mapping import EventMapping
from millstream.streams.rules.sigma.taxonomy import (
    ALIKE,
    LINUX_SYSMON,
    WINDOWS_CATEGORIES,
    knows_service,
    sysmon_condition,
    windows_condition,
)

__all__ = ["ANY_OTHER", "ANY_WINDOWS", "SourceCondition", "label_of", "log_source_condition"]

ANY_OTHER: Final = "every event that is no record of a Windows event log"
ANY_WINDOWS: Final = "every record of a Windows event log"

_KEYS: Final = ("product", "category", "service")
_NO_WINDOWS_LOG: Final = Atom("Channel", Op.IS_NULL)

_PRODUCTS: Final = (
    "windows", "linux", "macos", "aws", "azure", "bitbucket", "cisco", "django", "fortigate", "gcp", "github",
    "google_workspace", "huawei", "juniper", "jvm", "kubernetes", "m365", "modsecurity", "nodejs", "okta", "onelogin",
    "opencanary", "paloalto", "python", "rpc_firewall", "ruby_on_rails", "spring", "sql", "velocity", "zeek",
)  # fmt: skip
_CATEGORIES: Final = ("antivirus", "application", "database", "dns", "firewall", "proxy", "webserver")
"""Words of Sigma's taxonomy 2.1.0 beside those of Windows. Others are taken too, but for misspellings of these."""


class SourceCondition(NamedTuple):
    """What an event of a log source must be; `looks_at` says at which events its rules look for want of a sign."""

    condition: Formula
    looks_at: str = ""


def label_of(source: Mapping[Any, Any]) -> str:
    """The log source in a few letters, as in `aws/cloudtrail`."""
    return "/".join(_words(source).values())


def log_source_condition(source: Mapping[Any, Any], mapping: EventMapping) -> SourceCondition | None:
    """What an event of the log source must be; None where `mapping` says that there are none.

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
        return None
    mapped = mapping.condition(source)
    if mapped is not None:
        return SourceCondition(mapped)
    if any(_is_within(words, one) for one in given):
        return SourceCondition(Truth(True))
    usual = _usual(**words)
    if given and usual in (_NO_WINDOWS_LOG, negated(_NO_WINDOWS_LOG)):
        return SourceCondition(Truth(True))
    looks_at = {_NO_WINDOWS_LOG: ANY_OTHER, negated(_NO_WINDOWS_LOG): ANY_WINDOWS}.get(usual, "")
    return SourceCondition(usual, "" if words == {"product": "windows"} else looks_at)


def _words(source: Mapping[Any, Any]) -> dict[str, str]:
    return {key: str(source[key]) for key in _KEYS if source.get(key) is not None}


def _is_within(words: Mapping[str, str], of: Mapping[str, str]) -> bool:
    return words.items() <= of.items()


def _usual(product: str | None = None, category: str | None = None, service: str | None = None) -> Formula:
    # Services alone are those of Windows, as in the older forms of the taxonomy.
    if product == "windows" or (product is None and service is not None and knows_service(service)):
        return windows_condition(category, service)
    if product is not None:
        _check_spelling("product", product, _PRODUCTS)
        if product == "linux" and category in WINDOWS_CATEGORIES:
            return any_of(sysmon_condition(category, LINUX_SYSMON), _NO_WINDOWS_LOG)
        return _NO_WINDOWS_LOG
    if category is not None:
        _check_spelling("category", category, (*WINDOWS_CATEGORIES, *_CATEGORIES))
        if category in WINDOWS_CATEGORIES:
            return any_of(windows_condition(category, None), _NO_WINDOWS_LOG)
    return _NO_WINDOWS_LOG


def _check_spelling(kind: str, word: str, known: Iterable[str]) -> None:
    names = tuple(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=ALIKE)
    if near and _letters(word) != _letters(near[0]):
        raise Fault(f"no {kind} {word!r} is known; {near[0]!r} is")


def _letters(word: str) -> str:
    """The word, however its parts are joined."""
    return "".join(filter(str.isalnum, word.lower()))
