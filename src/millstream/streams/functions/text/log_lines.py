"""Parses log lines to named fields: well-known formats, and key-value texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from millstream.streams.functions.text.grok import grok

__all__ = ["LOG_FORMATS", "key_values", "parse_kv", "parse_log", "value_of_key"]


_CACHED_SEPARATORS = 1_000
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def value_of_key(text: str | None, pairs: str | None, keys: str | None, key: str | None) -> str | None:
    """The value of `key` in a text of pairs; each character of a separator separates, None means white space."""
    if not text or key is None:
        return None
    for pair in _split_text(text, pairs, 0):
        name, *value = _split_text(pair, keys, 1)
        if name == key and value:
            return value[0]
    return None


def _split_text(text: str, separators: str | None, most: int) -> list[str]:
    pattern = r"\s" if not separators else f"[{re.escape(separators)}]"
    return re.split(pattern, text, maxsplit=most)


def key_values(text: str, pairs: str | None = None, keys: str = "=") -> dict[str, str]:
    """The keys and values of a log line; `pairs` and `keys` are plain texts, None means white space.

    A value may stand in single or double quotes, with a backslash before a quote inside. The last of a key counts.
    """
    values = {}
    for match in _pattern(pairs, keys).finditer(text):
        if match["quote"]:
            values[match["key"]] = _ESCAPED.sub(r"\1", match["quoted"])
        else:
            values[match["key"]] = match["plain"].strip()
    return values


def parse_kv(text: str, pairs: str, keys: str) -> dict[str, str] | None:
    """`key_values` of a text with separators of its own; None where one of them is blank."""
    return key_values(text, pairs, keys) if pairs and keys else None


@lru_cache(maxsize=_CACHED_SEPARATORS)
def _pattern(pairs: str | None, keys: str) -> re.Pattern[str]:
    blank = pairs is None or not pairs.strip()
    pair, key = r"\s" if blank else re.escape(pairs or ""), re.escape(keys)
    start = r"(?:^|(?<=\s))" if blank else rf"(?:^|(?<=\s)|(?<={pair}))"
    gap = "" if blank else r"[^\S\r\n]*+"
    # Possessive, and only where a key can begin: a long line without keys is read once.
    return re.compile(
        rf"{start}(?P<key>(?:(?!{pair}|{key})\S)++)\s*+{key}{gap}"
        rf"(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\\]|\\.)*+)(?P=quote)|(?P<plain>(?:(?!{pair}).)*+))",
        re.DOTALL,
    )


_CEF = re.compile(r"CEF:\s*(\d+)((?:\|(?:[^|\\]|\\.)*){6})\|(.*)", re.DOTALL)
_CEF_NAMES = ("device_vendor", "device_product", "device_version", "signature_id", "name", "severity")
_CEF_KEY = re.compile(r"(?:^|\s)([\w.\[\]-]++)=")
_LEEF = re.compile(r"LEEF:\s*(1\.0|2\.0)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|(.*)", re.DOTALL)
_LEEF_DELIMITER = re.compile(r"(?:(x[0-9A-Fa-f]{2,4}|0x[0-9A-Fa-f]{2,4}|[^|])?\|)?(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r"}
_PRIORITY = re.compile(r"\s*(?:<(\d{1,3})>)?")
_RFC5424 = re.compile(
    r"1 (?P<timestamp>\S+) (?P<host>\S+) (?P<program>\S+) (?P<pid>\S+) (?P<message_id>\S+) "
    r'(?P<data>-|(?:\[(?:[^\]"\\]|\\.|"(?:[^"\\]|\\.)*")*\])+)(?: (?P<message>.*))?',
    re.DOTALL,
)
_SYSLOG = "^%{SYSLOGTIMESTAMP:timestamp} %{SYSLOGHOST:host} %{SYSLOGPROG}:? ?%{GREEDYDATA:message}"
_FACILITY = 8


def parse_log(text: str, log_format: str) -> dict[str, str] | None:
    """The fields of a line in one of `LOG_FORMATS`; None where it has another."""
    parse = LOG_FORMATS.get(log_format.upper())
    return None if parse is None else parse(text)


def _cef(text: str) -> dict[str, str] | None:
    """ArcSight's Common Event Format: a header, and keys whose values may hold blanks."""
    found = _CEF.search(text)
    if found is None:
        return None
    header = re.findall(r"\|((?:[^|\\]|\\.)*)", found[2])
    fields = {"cef_version": found[1]}
    fields |= {name: _plain(value) for name, value in zip(_CEF_NAMES, header, strict=True)}
    keys = list(_CEF_KEY.finditer(found[3]))
    ends = [*(key.start() for key in keys[1:]), len(found[3])]
    # Without any key there is still the end of the line.
    return fields | {key[1]: _plain(found[3][key.end() : end].rstrip()) for key, end in zip(keys, ends, strict=False)}


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def _leef(text: str) -> dict[str, str] | None:
    """QRadar's Log Event Extended Format: a header, and pairs with tabs, or a character of the header's, between."""
    found = _LEEF.search(text)
    if found is None:
        return None
    version, *header, rest = found.groups()
    delimiter = "\t"
    if version == "2.0":
        written, rest = _LEEF_DELIMITER.match(rest).groups()  # type: ignore[union-attr]
        if written:
            delimiter = (
                chr(int(written.lower().removeprefix("0").removeprefix("x"), 16)) if len(written) > 1 else written
            )
    names = ("vendor", "product", "product_version", "event_id")
    fields = {"leef_version": version, **dict(zip(names, header, strict=True))}
    pairs = (part.partition("=") for part in rest.split(delimiter))
    return fields | {key.strip(): value for key, sign, value in pairs if sign}


def _syslog(text: str) -> dict[str, str] | None:
    """RFC 5424, or the older form of RFC 3164, with or without a priority."""
    priority = _PRIORITY.match(text)
    rest = text[priority.end() :] if priority is not None else text
    newer = _RFC5424.match(rest)
    if newer is not None:
        fields = {name: value for name, value in newer.groupdict().items() if value not in (None, "-")}
    else:
        older = grok(rest, _SYSLOG)
        if older is None:
            return None
        fields = older
    if priority is not None and priority[1]:
        number = int(priority[1])
        fields |= {"facility": str(number // _FACILITY), "severity": str(number % _FACILITY)}
    return fields


def _grok_format(pattern: str) -> Callable[[str], dict[str, str] | None]:
    return lambda text: grok(text, pattern)


LOG_FORMATS: dict[str, Callable[[str], dict[str, str] | None]] = {
    "COMMON": _grok_format("^%{COMMONAPACHELOG}"),
    "COMBINED": _grok_format("^%{COMBINEDAPACHELOG}"),
    "SYSLOG": _syslog,
    "CEF": _cef,
    "LEEF": _leef,
    "KV": lambda text: key_values(text) or None,
}
"""What reads a line, by the name of its format."""
