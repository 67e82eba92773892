"""Further routing keys that a sender names in the headers CC and BCC (RabbitMQ's sender-selected distribution). Pure.

A message is routed by its own key and by each of these. The header BCC is taken out before the message is stored as it
is delivered, so that nobody who gets it learns of these keys; the record has all of them in a property of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from millstream.model.properties import has_control_character
from millstream.model.routing.amqp_bindings import MAX_KEY_BYTES
from millstream.model.routing.routes import MAX_FURTHER_KEYS
from millstream.protocol.amqp.content import decode_properties, encode_properties
from millstream.protocol.amqp.field_table import FieldTable, join_table, split_table
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode

__all__ = ["BLIND_COPIES", "COPIES", "check_sender_keys", "sender_keys", "without_header"]

COPIES: Final = "CC"
"""The header that all who get the message see."""

BLIND_COPIES: Final = "BCC"
"""The header that nobody sees."""


def sender_keys(headers: FieldTable) -> tuple[str, ...]:
    """The keys of both headers, each once; what is no text in them does not count, as in RabbitMQ."""
    found: dict[str, None] = {}
    for name in (COPIES, BLIND_COPIES):
        value = headers.get(name)
        if isinstance(value, list):
            found |= dict.fromkeys(one for one in value if isinstance(one, str))
    return tuple(found)


def check_sender_keys(headers: FieldTable, further: Sequence[str]) -> None:
    """Refuse headers that are none (PRECONDITION_FAILED), and keys that no message can have."""
    for name in (COPIES, BLIND_COPIES):
        if name in headers and not isinstance(headers[name], list):
            words = f"unacceptable_type_in_header: '{name}' is {headers[name]!r:.40} and no array of texts"
            raise _invalid(words)
    if len(further) > MAX_FURTHER_KEYS:
        raise _invalid(f"{len(further)} keys in '{COPIES}' and '{BLIND_COPIES}'; the limit is {MAX_FURTHER_KEYS}")
    for key in further:
        if len(key.encode()) > MAX_KEY_BYTES or has_control_character(key):
            raise _invalid(f"the key {key[:40]!r} has over {MAX_KEY_BYTES} bytes or a control character")


def without_header(properties: bytes, name: str) -> bytes:
    """The flags and values without a header; all others keep their bytes."""
    content = decode_properties(properties)
    if content.headers is None:
        return properties
    pairs = [pair for pair in split_table(content.headers) if pair[0] != name]
    return encode_properties(replace(content, headers=join_table(pairs)))


def _invalid(why: str) -> ChannelFailure:
    return ChannelFailure(ReplyCode.PRECONDITION_FAILED, f"invalid message: {why}")
