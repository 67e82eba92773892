"""GROK patterns: regular expressions with named parts, such as `%{IP:client} %{WORD:verb}`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["GROK_PATTERNS", "MAX_GROK_CHARACTERS", "grok"]

MAX_GROK_CHARACTERS = 20_000
"""Characters of a GROK pattern with all named ones put in; a longer one is wrong."""

_CACHED_PATTERNS = 1_000
_MAX_DEPTH = 10
_REFERENCE = re.compile(r"%\{(\w+)(?::([\w.@\[\]-]+))?(?::\w+)?\}")
_NAMED_GROUP = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")

GROK_PATTERNS: dict[str, str] = {
    "WORD": r"\b\w+\b",
    "NOTSPACE": r"\S+",
    "SPACE": r"\s*",
    "DATA": r".*?",
    "GREEDYDATA": r".*",
    "INT": r"[+-]?[0-9]+",
    "POSINT": r"\b[1-9][0-9]*\b",
    "NONNEGINT": r"\b[0-9]+\b",
    "NUMBER": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "BASE16NUM": r"[+-]?(?:0x)?[0-9A-Fa-f]+",
    "QUOTEDSTRING": r'(?:"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')',
    "QS": r"%{QUOTEDSTRING}",
    "UUID": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "MAC": r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}",
    "IPV4": r"(?<![0-9.])(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?![0-9])",
    "IPV6": r"(?<![:.\w])(?=[0-9A-Fa-f:]*::|(?:[0-9A-Fa-f]{1,4}:){6})[0-9A-Fa-f:.]{2,45}(?![:\w])",
    "IP": r"(?:%{IPV4}|%{IPV6})",
    "HOSTNAME": r"\b[0-9A-Za-z](?:[0-9A-Za-z-]{0,62})(?:\.[0-9A-Za-z][0-9A-Za-z-]{0,62})*\.?",
    "IPORHOST": r"(?:%{IP}|%{HOSTNAME})",
    "HOSTPORT": r"%{IPORHOST}:%{POSINT}",
    "USERNAME": r"[\w.-]+",
    "USER": r"%{USERNAME}",
    "EMAILADDRESS": r"[\w.+-]+@%{HOSTNAME}",
    "UNIXPATH": r"(?:/[^\s/]*)+",
    "WINPATH": r"(?:[A-Za-z]:|\\)(?:\\[^\\?*]*)+",
    "PATH": r"(?:%{UNIXPATH}|%{WINPATH})",
    "URIPROTO": r"[A-Za-z][A-Za-z0-9+.-]*",
    "URIPATH": r"(?:/[^\s?#]*)+",
    "URIPARAM": r"\?[^\s#]*",
    "URIPATHPARAM": r"%{URIPATH}(?:%{URIPARAM})?",
    "URI": r"%{URIPROTO}://(?:%{USER}(?::[^@\s]*)?@)?(?:%{IPORHOST}(?::%{POSINT})?)?(?:%{URIPATHPARAM})?",
    "YEAR": r"[0-9]{4}",
    "MONTH": r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b",
    "MONTHNUM": r"(?:0?[1-9]|1[0-2])",
    "MONTHDAY": r"(?:0[1-9]|[12][0-9]|3[01]|[1-9])",
    "DAY": r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*",
    "HOUR": r"(?:2[0-3]|[01]?[0-9])",
    "MINUTE": r"[0-5][0-9]",
    "SECOND": r"(?:[0-5]?[0-9]|60)(?:[.,][0-9]+)?",
    "TIME": r"(?<![0-9])%{HOUR}:%{MINUTE}(?::%{SECOND})?(?![0-9])",
    "ISO8601_TIMEZONE": r"(?:Z|[+-]%{HOUR}(?::?%{MINUTE})?)",
    "TIMESTAMP_ISO8601": r"%{YEAR}-%{MONTHNUM}-%{MONTHDAY}[T ]%{HOUR}:?%{MINUTE}(?::?%{SECOND})?%{ISO8601_TIMEZONE}?",
    "SYSLOGTIMESTAMP": r"%{MONTH} +%{MONTHDAY} %{TIME}",
    "HTTPDATE": r"%{MONTHDAY}/%{MONTH}/%{YEAR}:%{TIME} [+-][0-9]{4}",
    "LOGLEVEL": (
        r"\b(?i:trace|debug|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|alert|fatal|severe|emerg(?:ency)?)\b"
    ),
    "PROG": r"[\x21-\x5a\x5c\x5e-\x7e]+",
    "SYSLOGHOST": r"%{IPORHOST}",
    "SYSLOGPROG": r"%{PROG:program}(?:\[%{POSINT:pid}\])?",
    "SYSLOGBASE": r"%{SYSLOGTIMESTAMP:timestamp} %{SYSLOGHOST:logsource} %{SYSLOGPROG}:",
    "SYSLOGLINE": r"%{SYSLOGBASE} %{GREEDYDATA:message}",
    "COMMONAPACHELOG": (
        r"%{IPORHOST:clientip} %{NOTSPACE:ident} %{NOTSPACE:auth} \[%{HTTPDATE:timestamp}\] "
        r'"(?:%{WORD:verb} %{NOTSPACE:request}(?: HTTP/%{NUMBER:httpversion})?|%{DATA:rawrequest})" '
        r"%{INT:response} (?:%{INT:bytes}|-)"
    ),
    "COMBINEDAPACHELOG": r"%{COMMONAPACHELOG} %{QS:referrer} %{QS:agent}",
}
"""The named expressions that a pattern can refer to."""


@dataclass(frozen=True, slots=True)
class _Grok:
    """A pattern whose groups are numbered; `names` are the fields in the order of their groups."""

    pattern: re.Pattern[str]
    names: tuple[tuple[str, str], ...]


def grok(text: str, pattern: str) -> dict[str, str] | None:
    """What the named parts of the pattern match in the text; None where it does not match or is wrong."""
    ready = _ready(pattern)
    found = None if ready is None else ready.pattern.search(text)
    if ready is None or found is None:
        return None
    fields: dict[str, str] = {}
    for group, name in ready.names:
        if found[group] is not None:
            fields.setdefault(name, found[group])
    return fields


@lru_cache(maxsize=_CACHED_PATTERNS)
def _ready(pattern: str) -> _Grok | None:
    names: list[tuple[str, str]] = []

    def group_of(name: str) -> str:
        names.append((f"g{len(names)}", name))
        return f"(?P<{names[-1][0]}>"

    def put_in(part: str, depth: int) -> str:
        def reference(match: re.Match[str]) -> str:
            known = GROK_PATTERNS.get(match[1])
            if known is None or depth >= _MAX_DEPTH:
                raise KeyError(match[1])
            opening = group_of(match[2]) if match[2] else "(?:"
            return f"{opening}{put_in(known, depth + 1)})"

        named = _NAMED_GROUP.sub(lambda match: group_of(match[1]), part)
        whole = _REFERENCE.sub(reference, named)
        if len(whole) > MAX_GROK_CHARACTERS:
            raise KeyError(part)
        return whole

    try:
        return _Grok(re.compile(put_in(pattern, 0)), tuple(names))
    except (re.error, KeyError, OverflowError, RecursionError):
        return None
