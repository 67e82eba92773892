"""What an event of a rule's log source must be.

A site's mapping comes first. Windows has channels and ids of events (`taxonomy`). Everything else has no sign that all
recorders write, so its rules look at whatever is no record of a Windows event log.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.streams.rules.atoms import Atom, Op
from millstream.streams.rules.formulas import Formula, any_of
from millstream.streams.rules.sigma.fault import Fault
from millstream.streams.rules.sigma.mapping import EventMapping
from millstream.streams.rules.sigma.taxonomy import (
    LINUX_SYSMON,
    WINDOWS_CATEGORIES,
    sysmon_condition,
    windows_condition,
)

__all__ = ["log_source_condition"]

_NO_WINDOWS_LOG: Final = Atom("Channel", Op.IS_NULL)

_PRODUCTS: Final = (
    "windows", "linux", "macos", "aws", "azure", "bitbucket", "cisco", "django", "fortigate", "gcp", "github",
    "google_workspace", "huawei", "juniper", "jvm", "kubernetes", "m365", "modsecurity", "nodejs", "okta", "onelogin",
    "opencanary", "paloalto", "python", "rpc_firewall", "ruby_on_rails", "spring", "sql", "velocity", "zeek",
)  # fmt: skip
_CATEGORIES: Final = ("antivirus", "application", "database", "dns", "firewall", "proxy", "webserver")
"""Words of Sigma's taxonomy 2.1.0 beside those of Windows. Others are taken too, but for misspellings of these."""

_ALIKE: Final = 0.85
"""From here on a word is taken for a misspelling of another: 0 has nothing in common, 1 is the same."""


def log_source_condition(source: Mapping[Any, Any], mapping: EventMapping) -> Formula:
    """What an event of the log source must be. Raises Fault for words of Windows that are not known, or for none."""
    for key in ("product", "category", "service"):
        if source.get(key) is not None and not isinstance(source[key], str):
            raise Fault(f"the {key} {source[key]!r} is no text")
    mapped = mapping.condition(source)
    if mapped is not None:
        return mapped
    product, category, service = (source.get(key) for key in ("product", "category", "service"))
    # Services alone are those of Windows, as in the older forms of the taxonomy.
    if product == "windows" or (product is None and service is not None):
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
    raise Fault("the log source names neither product nor category nor service")


def _check_spelling(kind: str, word: str, known: Iterable[str]) -> None:
    names = tuple(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=_ALIKE)
    if word not in names and near:
        raise Fault(f"no {kind} {word!r} is known; {near[0]!r} is")
