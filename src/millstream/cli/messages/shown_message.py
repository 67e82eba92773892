"""A stored message as commands print it: values for JSON, lines of text, and user-defined formats."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter

from millstream.cli.messages.moment import time_text
from millstream.model import properties as names
from millstream.model.message import StoredMessage, SystemFlag
from millstream.protocol.record import offset_message_id

__all__ = ["FIELDS", "MessageFormat", "body_of", "details_of", "values_of"]

FIELDS = (
    "topic", "queue", "offset", "message_id", "offset_message_id", "tag", "keys", "group", "priority", "properties",
    "born_ms", "stored_ms", "stored", "size", "body",
)  # fmt: skip
"""What a format may name; properties[NAME] is one property."""

_PROPERTY = re.compile(r"properties\[([^\]]+)\]")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_ESCAPE = re.compile(r"\\[ntr0\\]")
_WIDTH = re.compile(r"\d{4,}")
"""A width over 999 is a slip, which would fill the memory."""


def body_of(message: StoredMessage) -> bytes:
    """The body, unpacked where its sender compressed it."""
    if not message.system_flag & SystemFlag.COMPRESSED:
        return message.body
    from millstream.proxy.grpc.message_encoder import plain_body

    return plain_body(message)


def values_of(message: StoredMessage) -> dict[str, object]:
    """Everything about the message by name. A body that is no UTF-8 has replacements in it, and `body_base64` too."""
    body = body_of(message)
    values: dict[str, object] = {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": offset_message_id(message.store_host, message.log_offset),
        "tag": message.tag,
        "keys": list(message.keys),
        "group": message.properties.get(names.MESSAGE_GROUP),
        "priority": message.priority,
        "properties": message.user_properties,
        "born_ms": message.born_timestamp_ms,
        "stored_ms": message.store_timestamp_ms,
        "body": body.decode("utf-8", "replace"),
    }
    if values["body"].encode() != body:  # type: ignore[attr-defined]  # a text
        values["body_base64"] = base64.b64encode(body).decode()
    return values


def details_of(message: StoredMessage) -> Iterator[str]:
    """Lines about everything but the body; what the message does not have is left out."""
    yield f"id          {message.message_id or '-'}"
    yield f"place       {message.topic}, queue {message.queue_id}, offset {message.queue_offset}"
    yield f"stored      {time_text(message.store_timestamp_ms)} by {message.store_host.host}:{message.store_host.port}"
    yield f"offset id   {offset_message_id(message.store_host, message.log_offset)}"
    if message.tag:
        yield f"tag         {message.tag}"
    if message.keys:
        yield f"keys        {' '.join(message.keys)}"
    if group := message.properties.get(names.MESSAGE_GROUP):
        yield f"group       {group}"
    if message.priority is not None:
        yield f"priority    {message.priority}"
    for name, value in message.user_properties.items():
        yield f"property    {name}={value}"


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    field: str | None
    spec: str


class MessageFormat:
    r"""A text with fields in braces, as in `{offset} {tag:>10} {properties[region]}\t{body}`; ValueError for others."""

    def __init__(self, text: str) -> None:
        unescaped = _ESCAPE.sub(lambda match: _ESCAPES[match[0]], text)
        self._parts = [
            _Part(before, field, spec or "") for before, field, spec, _conversion in Formatter().parse(unescaped)
        ]
        for part in self._parts:
            if part.field is not None and part.field not in FIELDS and not _PROPERTY.fullmatch(part.field):
                raise ValueError(f"{{{part.field}}} is no field; there are {', '.join(FIELDS)} and properties[NAME]")
            if _WIDTH.search(part.spec):
                raise ValueError(f"{{{part.field}:{part.spec}}} is wider than 999 characters")
            format(0 if part.field in ("queue", "offset", "born_ms", "stored_ms", "size") else "", part.spec)

    def line(self, message: StoredMessage) -> str:
        """The text with the message's values; what it does not have is blank."""
        values = values_of(message)
        body = body_of(message)
        values |= {"stored": time_text(message.store_timestamp_ms), "size": len(body)}
        return "".join(part.text + _fill_part(part, message, values) for part in self._parts)


def _fill_part(part: _Part, message: StoredMessage, values: dict[str, object]) -> str:
    if part.field is None:
        return ""
    if match := _PROPERTY.fullmatch(part.field):
        return format(message.user_properties.get(match[1], ""), part.spec)
    value = values[part.field]
    if part.field == "keys":
        value = " ".join(message.keys)
    elif part.field == "properties":
        value = ",".join(f"{name}={text}" for name, text in message.user_properties.items())
    elif part.field == "priority":
        value = None if value is None else str(value)
    return format("" if value is None else value, part.spec)
