"""The bulk lane: Arrow batches of messages, each stored as one record and read back unchanged."""

from __future__ import annotations

from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.queues.puller import MAX_RAW_BYTES
from millstream.broker.queues.reads import QueueReads
from millstream.broker.remoting.reading import pull_answer
from millstream.model.errors import MessageRefused
from millstream.model.message import MAX_BODY_BYTES, SystemFlag
from millstream.model.operations import PullRequest
from millstream.model.topic import MessageType
from millstream.protocol.arrow.batch import outline
from millstream.protocol.checksum import CheckedMessage, crc32
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import BulkPut
from millstream.protocol.remoting.messages.pulls import decode_fetch
from millstream.transport.remoting_connection import Connection

__all__ = ["BulkFetches", "BulkHandlers"]

_FLAGS: Final = SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH


class BulkHandlers:
    """Code 9101."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def put(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Store the batch; the answer names the queue offset of its first message."""
        call, body = BulkPut.decode(command.ext), command.body
        if len(body) > MAX_BODY_BYTES:
            raise MessageRefused("BODY_TOO_LARGE", f"The batch has {len(body)} bytes; the limit is {MAX_BODY_BYTES}.")
        if crc32(body) != call.checksum:
            raise MessageRefused("MESSAGE_MALFORMED", f"The batch of {len(body)} bytes was altered on the way.")
        found = outline(body).rows
        if found != call.rows:
            raise MessageRefused("MESSAGE_MALFORMED", f"The batch has {found} rows; its request says {call.rows}.")
        message = CheckedMessage(
            call.topic,
            body,
            {},
            MessageType.NORMAL,
            call.queue_id if call.queue_id >= 0 else None,
            _FLAGS,
            born_timestamp_ms=call.born_ms,
            born_host=connection.peer,
            message_count=call.rows,
            crc32=call.checksum,
        )
        receipt = (await self._broker.delivery.send([message]))[0]
        return command.response(
            ext={
                "queueId": str(receipt.queue_id),
                "queueOffset": str(receipt.queue_offset),
                "rows": str(call.rows),
                "storeTimestamp": str(receipt.store_timestamp_ms),
            }
        )


class BulkFetches:
    """Code 9102."""

    def __init__(self, queues: QueueReads) -> None:
        self._queues = queues

    async def fetch(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer with records laid end to end, batches whole; the reader verifies their checksums."""
        call = decode_fetch(command.ext)
        request = PullRequest(
            group=call.group,
            topic=call.topic,
            queue_id=call.queue_id,
            queue_offset=call.queue_offset,
            max_bytes=MAX_RAW_BYTES if call.max_bytes is None else call.max_bytes,
            wait_ms=call.wait_ms,
            raw=True,
        )
        # Answers of this one are large, and each is made by a task, so that all of a chunk are made before one is sent.
        await connection.ready()
        return pull_answer(command, await self._queues.pull(request, pace=connection))
