"""Settings as tools send and read them: the text of Java's Properties, a line `name=value` each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from millstream.model.errors import MessageRefused

__all__ = ["decode_java_properties", "encode_java_properties"]

_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*")
_SETTING = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def encode_java_properties(settings: Mapping[str, str]) -> bytes:
    """The settings' text, by name."""
    return "".join(f"{name}={_escape(value)}\n" for name, value in sorted(settings.items())).encode()


def decode_java_properties(body: bytes) -> dict[str, str]:
    """The settings of such a text; blank lines and those that begin with # or ! are passed over.

    MESSAGE_MALFORMED where it is no UTF-8.
    """
    try:
        lines = _LINE_END.split(_CONTINUED.sub(r"\1", body.decode()))
    except UnicodeDecodeError:
        raise MessageRefused("MESSAGE_MALFORMED", "The settings are no text in UTF-8.") from None
    told = (line.lstrip(" \t\f") for line in lines)
    found = (_SETTING.fullmatch(line) for line in told if line and line[0] not in "#!")
    return {_unescape(setting[1]): _unescape(setting[2]) for setting in found if setting is not None}


def _escape(value: str) -> str:
    return "".join(_TO_ESCAPE.get(character, character) for character in value)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _NAMED.get(escape, escape)
