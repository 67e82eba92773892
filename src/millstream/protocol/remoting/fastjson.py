"""The JSON dialect of RocketMQ's Java side (fastjson 1): objects and bare integers as keys of objects.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"minOffset":0}}}` is no valid JSON, but what admin tools
write and read. Plain JSON reads the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

__all__ = ["MAX_DEPTH", "MAX_TEXT_BYTES", "read_fastjson", "write_object_keys"]

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
