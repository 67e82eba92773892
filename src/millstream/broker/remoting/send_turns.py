"""Ordinary sends that arrive together: one look at their topic, one append, one write of their answers.

Ordinary is a message for a queue of a NORMAL topic that no property makes more of. All others go the general way, and
what follows them for their topic does too until they are stored, so that sends of one topic are stored in their order.
Both ways store the same bytes and give the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from typing import Final

from millstream.broker.admission import plain_properties
from millstream.broker.broker import Broker
from millstream.broker.remoting.gathering import MAX_GATHERED_MESSAGES, Gathering
from millstream.model.errors import MillstreamError
from millstream.model.message import MAX_BODY_BYTES, OutgoingMessage, SystemFlag
from millstream.model.properties import UNIQUE_KEY
from millstream.model.topic import RETRY_PREFIX, MessageType, TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.proxied import BORN_HOST, MESSAGE_TYPE
from millstream.protocol.remoting.send_answers import SendAnswers
from millstream.store.message_store import AppendedRecord, PendingRecord
from millstream.transport.remoting_server import Connection
from millstream.transport.turns import Turn, TurnHandler

__all__ = ["SendTurns"]

_General = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]

_FLAGS: Final = {None: SystemFlag.NONE, "0": SystemFlag.NONE, "1": SystemFlag.COMPRESSED}
"""System flags of ordinary messages."""

_ZEROS: Final = frozenset((None, "0"))
_NO_BATCH: Final = frozenset((None, "false"))
_INT64_DIGITS: Final = 18
"""Digits that surely fit 64 bits."""

_JSON, _SEND = HeaderType.JSON, int(RequestCode.SEND_MESSAGE_V2)
_NORMAL: Final = MessageType.NORMAL


class SendTurns(TurnHandler):
    """Code 310. `general` answers what is not ordinary."""

    def __init__(self, broker: Broker, gathering: Gathering, general: _General) -> None:
        self._broker = broker
        self._gathering = gathering
        self._general = general
        self._answers = SendAnswers(broker.offset_id_prefix)

    def __call__(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        return self._general(command, connection)

    def take(self, commands: Sequence[RemotingCommand], start: int, connection: Connection) -> Turn | None:
        """Take the ordinary sends of one topic from `start` on, `MAX_GATHERED_MESSAGES` at most."""
        topic = self._topic_of(commands[start])
        if topic is None:
            return None
        records = _ordinary(commands, start, topic, connection)
        if not records:
            return None
        try:
            stored = self._broker.store_plain(topic, records)
        except MillstreamError:
            # The general way says what is wrong, to each.
            return None
        frames: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        taken = commands[start : start + len(records)]
        stored.add_done_callback(partial(self._stored, taken, records, frames))
        return Turn(len(records), frames)

    def _topic_of(self, command: RemotingCommand) -> TopicConfig | None:
        name = command.ext.get("b")
        if not name or name.startswith(RETRY_PREFIX) or not self._gathering.is_free(name):
            return None
        return self._broker.plain_topic(name)

    def _stored(
        self,
        taken: Sequence[RemotingCommand],
        records: Sequence[PendingRecord],
        frames: asyncio.Future[bytes],
        stored: asyncio.Future[list[AppendedRecord]],
    ) -> None:
        if frames.done() or stored.cancelled():
            return
        error = stored.exception()
        if error is not None:
            frames.set_exception(error)
            return
        frames.set_result(
            self._answers.frames(
                [
                    (command.opaque, message.properties.get(UNIQUE_KEY), queue_id, place.queue_offset, place.log_offset)
                    for command, (message, queue_id, _), place in zip(taken, records, stored.result(), strict=True)
                ]
            )
        )


@lru_cache(maxsize=64)
def _queue_numbers(count: int) -> dict[str | None, int]:
    """The numbers of so many queues by their texts."""
    return {str(number): number for number in range(count)}


def _ordinary(
    commands: Sequence[RemotingCommand], start: int, topic: TopicConfig, connection: Connection
) -> list[PendingRecord]:
    """What is stored of the ordinary sends to the topic from `start` on, up to the first other request."""
    name, peer, queues = topic.name, connection.peer, _queue_numbers(topic.write_queues)
    records: list[PendingRecord] = []
    for position in range(start, min(len(commands), start + MAX_GATHERED_MESSAGES)):
        command = commands[position]
        ext, body = command.ext, command.body
        field = ext.get
        if command.code != _SEND or command.flag or command.header_type is not _JSON or field("b") != name:
            break
        queue_id, system_flag, born_ms = queues.get(field("e")), _FLAGS.get(field("f")), field("g")
        if queue_id is None or system_flag is None or not 0 < len(body) <= MAX_BODY_BYTES:
            break
        if field("h") not in _ZEROS or field("j") not in _ZEROS or field("m") not in _NO_BATCH:
            break
        if not born_ms or not born_ms.isdecimal() or len(born_ms) > _INT64_DIGITS:
            break
        if BORN_HOST in ext or MESSAGE_TYPE in ext:
            break
        text = field("i")
        properties = plain_properties(text) if text else {}
        if properties is None:
            break
        message = OutgoingMessage(
            name, body, properties, _NORMAL, queue_id, system_flag, 0, int(born_ms), peer
        )  # fmt: skip
        records.append(PendingRecord(message, queue_id))
    return records
