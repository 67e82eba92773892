"""Formats of RocketMQ's Java side: the text of Properties, and the JSON dialect of fastjson 1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from millstream.model.errors import MessageRefused

__all__ = [
    "MAX_DEPTH",
    "MAX_TEXT_BYTES",
    "decode_java_properties",
    "encode_java_properties",
    "read_fastjson",
    "write_object_keys",
]


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
    stripped_lines = (line.lstrip(" \t\f") for line in lines)
    found = (_SETTING.fullmatch(line) for line in stripped_lines if line and line[0] not in "#!")
    return {_unescape(setting[1]): _unescape(setting[2]) for setting in found if setting is not None}


def _escape(value: str) -> str:
    return "".join(_TO_ESCAPE.get(character, character) for character in value)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _NAMED.get(escape, escape)


MAX_DEPTH: Final = 32
"""Objects and lists inside each other at most."""

MAX_TEXT_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a text at most: this reader is for tables of some thousand queues and takes its time."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_END = ""


def read_fastjson(text: bytes) -> Any:
    """The value of a text in either dialect. A key that is an object becomes the tuple of its sorted items.

    ValueError where the text cannot be read, is over `MAX_TEXT_BYTES` or nests deeper than `MAX_DEPTH`.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise ValueError(f"{len(text)} bytes of JSON; the limit is {MAX_TEXT_BYTES}")
    source = text.decode()
    tokens = _tokens(source)
    value = _read(next(tokens, _END), tokens, MAX_DEPTH)
    if next(tokens, _END) != _END:
        raise ValueError("text after the end of the JSON value")
    return value


def write_object_keys(pairs: Iterable[tuple[Mapping[str, Any], Any]]) -> bytes:
    """An object whose keys are objects themselves, in fastjson's form."""
    encode = msgspec.json.encode
    return b"{" + b",".join(encode(key) + b":" + encode(value) for key, value in pairs) + b"}"


def _tokens(source: str) -> Iterator[str]:
    position = 0
    for match in _TOKEN.finditer(source):
        if source[position : match.start()].strip():
            raise ValueError(f"unexpected text at position {position} of the JSON value")
        position = match.end()
        yield match[0]
    if source[position:].strip():
        raise ValueError(f"unexpected text at position {position} of the JSON value")


def _read(token: str, tokens: Iterator[str], depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH}")
    if token == "{":
        return dict(_pairs(tokens, depth))
    if token == "[":
        return list(_items(tokens, depth))
    if token in ("", "}", "]", ":", ","):
        raise ValueError(f"unexpected {token or 'end'!r} in the JSON value")
    try:
        return msgspec.json.decode(token)
    except msgspec.DecodeError as error:
        raise ValueError(f"unexpected {token[:40]!r} in the JSON value: {error}") from None


def _items(tokens: Iterator[str], depth: int) -> Iterator[Any]:
    token = next(tokens, _END)
    while token != "]":
        yield _read(token, tokens, depth - 1)
        token = next(tokens, _END)
        if token == ",":
            token = next(tokens, _END)
        elif token != "]":
            raise ValueError(f"unexpected {token or 'end'!r} in a JSON list")


def _pairs(tokens: Iterator[str], depth: int) -> Iterator[tuple[Any, Any]]:
    token = next(tokens, _END)
    while token != "}":
        key = _read(token, tokens, depth - 1)
        if next(tokens, _END) != ":":
            raise ValueError("a key without a value in a JSON object")
        yield _hashable(key), _read(next(tokens, _END), tokens, depth - 1)
        token = next(tokens, _END)
        if token == ",":
            token = next(tokens, _END)
        elif token != "}":
            raise ValueError(f"unexpected {token or 'end'!r} in a JSON object")


def _hashable(key: Any) -> Any:
    if isinstance(key, dict):
        key = tuple(sorted(key.items()))
    try:
        hash(key)
    except TypeError:
        raise ValueError("a list or nested object as a key of a JSON object") from None
    return key
