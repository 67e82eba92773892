"""Picks the ordinary sends out of a chunk of requests, so that they are stored together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.broker.delivery.admission import MAX_USER_PROPERTIES_BYTES, plain_properties
from millstream.model.message import MAX_BODY_BYTES, Address, SystemFlag
from millstream.model.properties import KEYS, TAGS, encode_properties
from millstream.model.topic import TopicConfig
from millstream.protocol.record_encoder import PlainRecord
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.messages.sends import BORN_HOST, MESSAGE_TYPE
from millstream.protocol.remoting.request_shape import ShapedRun
from millstream.protocol.remoting.send_shape import SendShape, SentRecord

__all__ = ["MAX_GATHERED_MESSAGES", "MAX_KNOWN_NAMES", "accept_run", "read_ordinary_sends", "read_properties"]

MAX_GATHERED_MESSAGES: Final = 1024
"""Messages of one group at most."""

MAX_KNOWN_NAMES: Final = 1024
"""Sets of property names that are remembered at most, before all are forgotten."""

_MAX_NAMES_CHARACTERS: Final = 512
"""Characters of a text of properties at most whose names are remembered."""

_FLAGS: Final = {None: 0, "0": 0, "1": int(SystemFlag.COMPRESSED)}
"""System flags of ordinary messages."""

_ZEROS: Final = frozenset((None, "0"))
_NO_BATCH: Final = frozenset((None, "false"))
_NOTHING_SAID: Final = (None, None)
_QUEUE_DIGITS: Final = 9
_MAX_BODY_BYTES: Final = MAX_BODY_BYTES
_INT64: Final = 1 << 63
_JSON, _SEND = HeaderType.JSON, int(RequestCode.SEND_MESSAGE_V2)
_BORN_HOST, _MESSAGE_TYPE = BORN_HOST, MESSAGE_TYPE
_MAX_TEXT_BYTES: Final = MAX_USER_PROPERTIES_BYTES
_MAX_GATHERED_MESSAGES: Final = MAX_GATHERED_MESSAGES


def read_ordinary_sends(
    commands: Sequence[RemotingCommand], start: int, topic: TopicConfig, peer: Address
) -> list[SentRecord]:
    """What is stored of the ordinary sends to the topic from `start` on, up to the first other request.

    `peer` is who sent them. At most `MAX_GATHERED_MESSAGES` of them."""
    name = topic.name
    # A producer's requests differ in times, bodies and properties; the rest is judged once for all that are alike.
    judged: dict[tuple[str | None, ...], tuple[int, int] | None] = {}
    records: list[SentRecord] = []
    last: tuple[str | None, ...] = ()
    judgement: tuple[int, int] | None = None
    for position in range(start, min(len(commands), start + MAX_GATHERED_MESSAGES)):
        command = commands[position]
        ext, body = command.ext, command.body
        if command.code != _SEND or command.flag or command.header_type is not _JSON:
            break
        rest = _rest_of(ext)
        if rest != last:
            last = rest
            if rest not in judged:
                judged[rest] = _judge(topic, *rest)
            judgement = judged[rest]
        if judgement is None or not 0 < len(body) <= _MAX_BODY_BYTES:
            break
        try:
            born_ms = int(ext.get("g") or "")
        except ValueError:
            break
        text = ext.get("i")
        properties = read_properties(text) if text else {}
        if properties is None or not 0 <= born_ms < _INT64:
            break
        stored = _stored_text(text, properties) if text else b""
        queue_id, system_flag = judgement
        records.append(SentRecord(command.opaque, name, queue_id, body, properties, stored, system_flag, born_ms, peer))
    return records


def accept_run(run: ShapedRun, topic: TopicConfig, peer: Address) -> list[SentRecord]:
    """The same of sends that are alike, from the first one on: their records, made ready to be stored."""
    if not isinstance(run.shape, SendShape):
        return []
    shape, sent = run.shape, run.requests
    judgement = _judge(topic, *_rest_of({**shape.fields, "e": "0"}))
    if judgement is None or (shape.names and not _are_known(shape.names, sent[0])):
        return []
    system_flag, queues = judgement[1], topic.write_queues
    count = 0
    for record in sent:
        size, text_bytes = len(record.body), len(record.stored_properties)
        if record.queue_id >= queues or not 0 < size <= _MAX_BODY_BYTES or text_bytes > _MAX_TEXT_BYTES:
            break
        if count == _MAX_GATHERED_MESSAGES:
            break
        record.system_flag, record.born_host = system_flag, peer
        count += 1
    return sent if count == len(sent) else sent[:count]


def _rest_of(ext: dict[str, str]) -> tuple[str | None, ...]:
    """What is judged of a send's fields."""
    return (
        ext.get("b"), ext.get("e"), ext.get("f"), ext.get("h"), ext.get("j"), ext.get("m"), ext.get(_BORN_HOST),
        ext.get(_MESSAGE_TYPE),
    )  # fmt: skip


_known_names: dict[tuple[str, ...], bool] = {}
"""Names of properties of acceptable ordinary messages, and whether the tag or the keys are among them."""


def read_properties(text: str) -> dict[str, str] | None:
    """As `plain_properties`, which is asked once for all messages whose properties have the same names."""
    held = dict([pair.split("\x01", 1) for pair in text.split("\x02") if "\x01" in pair])
    names = tuple(held)
    is_named = _known_names.get(names)
    is_known = is_named is not None and len(text) <= MAX_USER_PROPERTIES_BYTES and text.isascii()
    if is_known and "".join(held.values()).isprintable() and not (is_named and _has_odd_name(held)):
        return held
    plain = plain_properties(text)
    if plain is not None and is_named is None and len(text) <= _MAX_NAMES_CHARACTERS:
        if len(_known_names) >= MAX_KNOWN_NAMES:
            _known_names.clear()
        _known_names[names] = TAGS in plain or KEYS in plain
    return plain


def _are_known(names: tuple[str, ...], sample: PlainRecord) -> bool:
    """Whether these are names of properties of ordinary messages; the sample has them. That no value is odd is known
    of records that fit a shape."""
    if names not in _known_names:
        read_properties(sample.stored_properties.decode())
    return names in _known_names


def _has_odd_name(held: dict[str, str]) -> bool:
    """Whether the tag or the keys have to be looked at closer."""
    tag, keys = held.get(TAGS), held.get(KEYS)
    return (tag is not None and ("|" in tag or not tag.strip())) or (keys is not None and not keys.strip())


def _stored_text(text: str, held: dict[str, str]) -> bytes:
    """The stored form of properties that were read from a text: that text itself, unless it says one twice or leaves
    out what parts them."""
    size = 2 * len(held)
    for name, value in held.items():
        size += len(name) + len(value)
    return text.encode() if size == len(text) and text[-1] == "\x02" else encode_properties(held)


def _judge(
    topic: TopicConfig,
    name: str | None,
    queue: str | None,
    system_flag: str | None,
    flag: str | None,
    reconsume_times: str | None,
    is_batch: str | None,
    *said_by_proxy: str | None,
) -> tuple[int, int] | None:
    """Queue and system flag of the messages with these fields; None where they are not ordinary."""
    is_known = name == topic.name and system_flag in _FLAGS and said_by_proxy == _NOTHING_SAID
    if not is_known or flag not in _ZEROS or reconsume_times not in _ZEROS or is_batch not in _NO_BATCH:
        return None
    if queue is None or not queue.isdecimal() or len(queue) > _QUEUE_DIGITS or int(queue) >= topic.write_queues:
        return None
    return int(queue), _FLAGS[system_flag]
