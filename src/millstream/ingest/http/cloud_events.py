"""CloudEvents over HTTP, in both content modes: the data becomes the message's body, the attributes its properties.

Sources: the CloudEvents specification 1.0.2, its JSON format and its HTTP protocol binding (facts only). Properties are
named CE_ and the attribute, as the binding of CloudEvents' Java SDK for RocketMQ has them; the key is the event's id.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import orjson

from millstream.ingest.labels import MAX_LABEL_CHARACTERS, clean_text

__all__ = ["MAX_ATTRIBUTES", "CloudEvent", "of_headers", "of_json"]

MAX_ATTRIBUTES: Final = 60
"""Attributes of one event at most."""

_HEADER: Final = "ce-"
_PROPERTY: Final = "CE_"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_NAME: Final = re.compile("[a-z0-9]{1,64}")
_DATA: Final = ("data", "data_base64")

_RAW_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """One event: its data as bytes, and its attributes as properties of a message."""

    body: bytes
    properties: Mapping[str, str]
    key: str | None


def of_headers(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """An event in the binary mode: attributes in headers (in lower case), the data is the body. ValueError."""
    attributes = {
        name.removeprefix(_HEADER): unquote(value) for name, value in headers.items() if name.startswith(_HEADER)
    }
    if "content-type" in headers:
        attributes["datacontenttype"] = headers["content-type"]
    return _event(attributes, body)


def of_json(text: bytes) -> CloudEvent:
    """An event in the structured mode. ValueError with what is wrong."""
    try:
        members = _RAW_OBJECT.decode(text)
        attributes = {
            name: _text(name, orjson.loads(bytes(value))) for name, value in members.items() if name not in _DATA
        }
    except (msgspec.MsgspecError, orjson.JSONDecodeError) as error:
        raise ValueError(str(error)) from None
    return _event({name: value for name, value in attributes.items() if value is not None}, _data(members))


def _data(members: Mapping[str, msgspec.Raw]) -> bytes:
    packed, plain = members.get("data_base64"), members.get("data")
    if packed is not None and plain is not None:
        raise ValueError("it has data and data_base64")
    if plain is not None:
        raw = bytes(plain).strip()
        value = orjson.loads(raw)
        # A text is the data itself; everything else is JSON, which is kept as it is written.
        return value.encode() if isinstance(value, str) else raw
    if packed is None:
        return b""
    try:
        return base64.b64decode(orjson.loads(bytes(packed)), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("data_base64 is no base64") from None


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return orjson.dumps(value).decode()
    raise ValueError(f"the attribute {name[:80]!r} is a {type(value).__name__}, not a text, number or boolean")


def _event(attributes: Mapping[str, str], body: bytes) -> CloudEvent:
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing:
        raise ValueError(f"the attribute {missing[0]} is missing")
    if len(attributes) > MAX_ATTRIBUTES:
        raise ValueError(f"it has {len(attributes)} attributes; {MAX_ATTRIBUTES} are taken")
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of an attribute: lower-case letters and digits")
        if len(value) > MAX_LABEL_CHARACTERS:
            raise ValueError(f"the attribute {name} has {len(value):,} characters; {MAX_LABEL_CHARACTERS:,} are taken")
    properties = {_PROPERTY + name: clean_text(value) for name, value in attributes.items()}
    key = clean_text(attributes["id"])
    # A message has a body; an event without data says as much as one whose data is null.
    return CloudEvent(body or b"null", properties, key if key.strip() else None)
