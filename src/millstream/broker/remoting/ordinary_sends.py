"""The ordinary sends among the requests that arrived together, as they are to be stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from millstream.broker.delivery.admission import plain_properties
from millstream.model.message import MAX_BODY_BYTES, Address, OutgoingMessage, SystemFlag
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.messages.sends import BORN_HOST, MESSAGE_TYPE
from millstream.store.message_store import PendingRecord

__all__ = ["MAX_GATHERED_MESSAGES", "read_ordinary_sends"]

MAX_GATHERED_MESSAGES: Final = 1024
"""Messages of one group at most."""

_FLAGS: Final = {None: SystemFlag.NONE, "0": SystemFlag.NONE, "1": SystemFlag.COMPRESSED}
"""System flags of ordinary messages."""

_ZEROS: Final = frozenset((None, "0"))
_NO_BATCH: Final = frozenset((None, "false"))
_REST: Final = ("b", "e", "f", "h", "j", "m", BORN_HOST, MESSAGE_TYPE)
"""Topic, queue, system flag, flag, reconsume times and batch: all that is looked at but properties and born time."""

_NOTHING_SAID: Final = (None, None)
_QUEUE_DIGITS: Final = 9
_INT64: Final = 1 << 63
_pending = partial(tuple.__new__, PendingRecord)
"""A named tuple's own constructor takes its fields apart and together again."""

_JSON, _SEND = HeaderType.JSON, int(RequestCode.SEND_MESSAGE_V2)
_NORMAL: Final = MessageType.NORMAL


def read_ordinary_sends(
    commands: Sequence[RemotingCommand], start: int, topic: TopicConfig, peer: Address
) -> list[PendingRecord]:
    """What is stored of the ordinary sends to the topic from `start` on, up to the first other request.

    `peer` is who sent them. At most `MAX_GATHERED_MESSAGES` of them."""
    name = topic.name
    # A producer's requests differ in times, bodies and properties; the rest is judged once for all that are alike.
    judged: dict[tuple[str | None, ...], tuple[int, SystemFlag] | None] = {}
    records: list[PendingRecord] = []
    for position in range(start, min(len(commands), start + MAX_GATHERED_MESSAGES)):
        command = commands[position]
        field, body = command.ext.get, command.body
        if command.code != _SEND or command.flag or command.header_type is not _JSON:
            break
        rest = tuple(map(field, _REST))
        judgement = judged.get(rest)
        if judgement is None:
            judgement = judged[rest] = _judge(topic, *rest)
        if judgement is None or not 0 < len(body) <= MAX_BODY_BYTES:
            break
        try:
            born_ms = int(field("g") or "")
        except ValueError:
            break
        text = field("i")
        properties = plain_properties(text) if text else {}
        if properties is None or not 0 <= born_ms < _INT64:
            break
        queue_id, system_flag = judgement
        message = OutgoingMessage(name, body, properties, _NORMAL, queue_id, system_flag, 0, born_ms, peer)
        records.append(_pending((message, queue_id, None, ())))
    return records


def _judge(
    topic: TopicConfig,
    name: str | None,
    queue: str | None,
    system_flag: str | None,
    flag: str | None,
    reconsume_times: str | None,
    is_batch: str | None,
    *said_by_proxy: str | None,
) -> tuple[int, SystemFlag] | None:
    """Queue and system flag of the messages with these fields; None where they are not ordinary."""
    is_known = name == topic.name and system_flag in _FLAGS and said_by_proxy == _NOTHING_SAID
    if not is_known or flag not in _ZEROS or reconsume_times not in _ZEROS or is_batch not in _NO_BATCH:
        return None
    if queue is None or not queue.isdecimal() or len(queue) > _QUEUE_DIGITS or int(queue) >= topic.write_queues:
        return None
    return int(queue), _FLAGS[system_flag]
