"""Parses User-Agent headers by our own rules for common browsers, tools and robots."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["MAX_HEADER_CHARACTERS", "USER_AGENT_PARTS", "user_agent_part"]

USER_AGENT_PARTS = ("BROWSER", "BROWSER_VERSION", "OS", "OS_VERSION", "DEVICE")
"""What can be asked for. A DEVICE is Bot, Phone, Tablet, Computer, Tool or Other."""

MAX_HEADER_CHARACTERS = 2_048
"""Characters of a header that are looked at."""

_CACHED_HEADERS = 50_000
_VERSION = r"([0-9][0-9A-Za-z._]*)"

_BROWSERS = tuple(
    (name, re.compile(pattern.replace("VERSION", _VERSION)))
    for name, pattern in (
        ("Edge", r"\b(?:Edg|EdgA|EdgiOS|Edge)/VERSION"),
        ("Opera", r"\b(?:OPR|OPiOS|Opera)/VERSION"),
        ("Samsung Internet", r"\bSamsungBrowser/VERSION"),
        ("Yandex Browser", r"\bYaBrowser/VERSION"),
        ("Vivaldi", r"\bVivaldi/VERSION"),
        ("UC Browser", r"\bUCBrowser/VERSION"),
        ("WeChat", r"\bMicroMessenger/VERSION"),
        ("Firefox", r"\b(?:Firefox|FxiOS)/VERSION"),
        ("Internet Explorer", r"\bMSIE VERSION"),
        ("Internet Explorer", r"\bTrident/.*\brv:VERSION"),
        ("Chrome", r"\b(?:Chrome|CriOS|HeadlessChrome)/VERSION"),
        ("Safari", r"\bVersion/VERSION.*\bSafari/"),
        ("Safari", r"\bSafari/VERSION"),
    )
)
_TOOL = re.compile(
    r"^(curl|Wget|python-requests|Python-urllib|aiohttp|Go-http-client|okhttp|Java|Apache-HttpClient|PostmanRuntime|"
    r"axios|libwww-perl|Ruby|PowerShell|node-fetch|sqlmap|Nmap|nikto|masscan|zgrab)\b/?" + _VERSION + "?",
    re.IGNORECASE,
)
_BOT = re.compile(r"([\w.-]*(?:bot|crawler|spider|slurp)[\w.-]*)(?:/" + _VERSION + ")?", re.IGNORECASE)
_SYSTEMS = tuple(
    (name, re.compile(pattern.replace("VERSION", _VERSION)))
    for name, pattern in (
        ("Windows Phone", r"Windows Phone(?: OS)? VERSION"),
        ("Windows", r"Windows NT VERSION"),
        ("Windows", r"Windows()"),
        ("iOS", r"(?:iPhone OS|CPU OS) VERSION"),
        ("iOS", r"iPhone|iPad|iPod()"),
        ("Android", r"Android VERSION"),
        ("Android", r"Android()"),
        ("macOS", r"Mac OS X VERSION"),
        ("macOS", r"Macintosh()"),
        ("ChromeOS", r"CrOS \S+ VERSION"),
        ("FreeBSD", r"FreeBSD()"),
        ("Linux", r"Linux|X11()"),
    )
)
_WINDOWS = {"10.0": "10", "6.3": "8.1", "6.2": "8", "6.1": "7", "6.0": "Vista", "5.2": "XP", "5.1": "XP", "5.0": "2000"}


def user_agent_part(header: str, part: str) -> str | None:
    """One of `USER_AGENT_PARTS` of a header; None where the header does not tell it."""
    place = part.upper()
    return _parts(header[:MAX_HEADER_CHARACTERS])[USER_AGENT_PARTS.index(place)] if place in USER_AGENT_PARTS else None


@lru_cache(maxsize=_CACHED_HEADERS)
def _parts(header: str) -> tuple[str | None, ...]:
    system, system_version = _first(_SYSTEMS, header)
    if system == "Windows" and system_version is not None:
        system_version = _WINDOWS.get(system_version, system_version)
    elif system_version is not None:
        system_version = system_version.replace("_", ".")
    bot = _BOT.search(header)
    tool = _TOOL.match(header)
    if bot is not None or tool is not None:
        found = bot or tool
        browser, version = (found[1], found[2]) if found is not None else (None, None)
    else:
        browser, version = _first(_BROWSERS, header)
    device = "Bot" if bot else "Tool" if tool else _device(header, system)
    return browser, version, system, system_version, device


def _first(rules: tuple[tuple[str, re.Pattern[str]], ...], header: str) -> tuple[str | None, str | None]:
    for name, pattern in rules:
        found = pattern.search(header)
        if found is not None:
            return name, found[1] or None
    return None, None


def _device(header: str, system: str | None) -> str:
    if "iPad" in header or "Tablet" in header or (system == "Android" and "Mobile" not in header):
        return "Tablet"
    if system in ("iOS", "Android", "Windows Phone") or "Mobile" in header:
        return "Phone"
    return "Other" if system is None else "Computer"
