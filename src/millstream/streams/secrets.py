"""Masks secrets in output: option values by name, and passwords in URLs.

What is no option yet, because its statement cannot be read, is judged by its name alone. References to the environment,
as `${env:NAME}`, are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["HIDDEN", "hide_secrets", "secret_spans", "shown_url"]

HIDDEN: Final = "******"
"""Stands in the place of a secret, whatever its length."""

_PASSWORDS = re.compile(r"(?<=[?&;]password=)[^&;]*|(?<=://)([^/@]*?):[^/@]*(?=@)", re.IGNORECASE)

_NAME: Final = (
    r"[\w.\-]*(?:passw|passphrase|secret|token|api[-_.]?key|private[-_.]?key|credential|user-info)[\w.\-]*"
    r"|header\.[\w.\-]+"
)
_GAP: Final = r"(?:\s|--[^\r\n]*|/\*.*?\*/)*+"
_STRING: Final = r"'(?P<{}>[^']*+(?:''[^']*+)*+)(?:'|\Z)"
_SECRETS: Final = re.compile(
    rf"'(?:{_NAME})'{_GAP}=?{_GAP}{_STRING.format('quoted')}"
    rf"|'(?:{_NAME})'{_GAP}={_GAP}(?P<bare>[^\s,;()'$]+)"
    rf"|[`\"]?\b(?:{_NAME})[`\"]?{_GAP}={_GAP}{_STRING.format('compared')}"
    r"|[?&;]password=(?P<parameter>(?:[^&;'\s]|'')+)"
    r"|://(?:[^/@'\s:]*):(?P<login>(?:[^/@'\s]|'')+)@",
    re.IGNORECASE | re.DOTALL,
)
_HINT: Final = re.compile(r"passw|passphrase|secret|token|key|credential|user-info|header|://", re.IGNORECASE)
_REFERENCE: Final = "${"


def shown_url(url: str) -> str:
    """The URL with *** in the place of a password that stands in it."""
    return _PASSWORDS.sub(lambda found: "***" if found[1] is None else f"{found[1]}:***", url)


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Where secrets stand in a text of SQL, each from its first character to behind its last, in order."""
    return list(_spans(text)) if _HINT.search(text) else []


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for found in _SECRETS.finditer(text):
        start, end = found.span(str(found.lastgroup))
        if start < end and not text.startswith(_REFERENCE, start):
            yield start, end


def hide_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text that quotes some of the script, without these secrets of it."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
