"""Storing messages, one per request or a batch that is expanded to a record per message; taking delayed ones back."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from millstream.broker.broker import Broker
from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.broker.remoting.send_batching import SendBatcher, SendBatchHandler
from millstream.model.errors import MessageRefused
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import SendReceipt
from millstream.model.properties import (
    CLUSTER,
    PRODUCER_GROUP,
    REPLY_TO_CLIENT,
    TRANSACTION,
    UNIQUE_KEY,
)
from millstream.model.recall import RecallHandle
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import decode_batch
from millstream.protocol.remoting.messages.message_requests import Recall
from millstream.protocol.remoting.messages.proxied import BORN_HOST, batch_places
from millstream.protocol.remoting.messages.send_answers import REGION, sent_fields
from millstream.protocol.remoting.messages.sends import SendCall, decode_send
from millstream.transport.remoting_connection import Connection

__all__ = ["REGION", "SendHandlers", "answer_fields"]

_TRANSACTION_FLAGS = int(SystemFlag.TRANSACTION_ROLLBACK)
"""Both bits: prepared, commit and rollback."""

_PREPARED = int(SystemFlag.TRANSACTION_PREPARED)


class SendHandlers:
    """Codes 10, 310, 320 and 370."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._batcher = SendBatcher(broker)
        self.batches = SendBatchHandler(broker, self._batcher, self.send_v2)

    def send(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        """Code 10."""
        return self._send(command, decode_send(command.ext, command.body, connection.peer, is_short=False))

    def send_v2(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        """Codes 310 and 320."""
        return self._send(command, decode_send(command.ext, command.body, connection.peer, is_short=True))

    def _send(self, command: RemotingCommand, call: SendCall) -> Awaitable[RemotingCommand]:
        is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE or call.is_batch
        first = call.message
        if first.topic.startswith(RETRY_PREFIX):
            return self._send_returned(command, call, is_batch)
        system_flag = int(first.system_flag)
        if system_flag & _TRANSACTION_FLAGS or TRANSACTION in first.properties:
            _prepare(first.properties, system_flag, call.producer_group)
        if REPLY_TO_CLIENT in first.properties:
            first.properties[CLUSTER] = self._broker.cluster
        if not is_batch:
            return self._batcher.add(first, partial(_answer, command, first.topic), typed=call.is_typed)
        items = decode_batch(command.body)
        for _, properties, _ in items:
            if properties.get(TRANSACTION) == "true":
                raise MessageRefused("MESSAGE_MALFORMED", "A message of a batch cannot be transactional.")
        if UNIQUE_KEY in first.properties and self._holds_batches(first.topic):
            return self._send_whole(command, call, len(items))
        messages = [
            OutgoingMessage(
                first.topic, body, properties, first.message_type, first.queue_id, first.system_flag, flag,
                born_timestamp_ms=first.born_timestamp_ms, born_host=first.born_host,
            )
            for body, properties, flag in items
        ]  # fmt: skip
        return self._batcher.add_batch(messages, partial(_batch_answer, command), typed=call.is_typed)

    async def recall(self, command: RemotingCommand, _connection: Connection) -> RemotingCommand:
        """Code 370: take a delayed message back."""
        call = Recall.decode(command.ext)
        topic, handle = call.topic, RecallHandle.decode_for(call.topic, call.handle)
        if handle.broker_name != self._broker.name:
            words = f"The handle is of the broker {handle.broker_name[:80]!r}, not of {self._broker.name!r}."
            raise MessageRefused("ILLEGAL_RECALL_HANDLE", words)
        await self._broker.delivery.recall(topic, handle.message_id)
        return command.response(ext={"msgId": handle.message_id})

    async def _send_returned(self, command: RemotingCommand, call: SendCall, is_batch: bool) -> RemotingCommand:
        """Store what a consumer gives back by itself, as it does where code 36 failed."""
        message = call.message
        if is_batch:
            raise MessageRefused("MESSAGE_MALFORMED", f"A batch is sent to the retry topic {message.topic[:200]!r}.")
        receipt = await self._broker.delivery.send_retry(message, call.max_reconsume_times)
        return _answer(command, message.topic, [receipt])

    def _holds_batches(self, topic: str) -> bool:
        found = self._broker.topics.find(topic)
        return found is not None and found.holds_batches

    def _send_whole(self, command: RemotingCommand, call: SendCall, message_count: int) -> Awaitable[RemotingCommand]:
        """Store the batch as one record, as RocketMQ does where the batch has an id of its own."""
        first = call.message
        flags = SystemFlag(int(first.system_flag) | SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP)
        batch = replace(first, system_flag=flags, message_count=message_count)
        batch_id = first.properties[UNIQUE_KEY]

        def answer(receipts: list[SendReceipt]) -> RemotingCommand:
            ext = answer_fields(receipts[0], receipts[0].offset_message_id)
            return command.response(ext={**ext, "batchUniqId": batch_id})

        return self._batcher.add_batch([batch], answer, typed=call.is_typed)


def _answer(command: RemotingCommand, topic: str, receipts: list[SendReceipt]) -> RemotingCommand:
    receipt = receipts[0]
    ext = answer_fields(receipt, receipt.offset_message_id)
    if receipt.message_id:
        ext["transactionId"] = receipt.message_id
        if receipt.due_ms is not None:
            handle = RecallHandle(topic, receipt.broker_name, receipt.due_ms, receipt.message_id)
            ext["recallHandle"] = handle.encode()
    return command.response(ext=ext)


def _batch_answer(command: RemotingCommand, receipts: list[SendReceipt]) -> RemotingCommand:
    ids = ",".join([receipt.offset_message_id for receipt in receipts])
    places = batch_places(receipts) if BORN_HOST in command.ext else {}
    return command.response(ext=answer_fields(receipts[0], ids) | places)


def answer_fields(first: SendReceipt, ids: str) -> dict[str, str]:
    """The fields of an answer whose `first` message is there."""
    return sent_fields(ids, first.queue_id, first.queue_offset)


def _prepare(properties: dict[str, str], system_flag: int, producer_group: str) -> None:
    """Check a half message, and note whose it is: who ends it must be of that group."""
    is_half = properties.get(TRANSACTION) == "true"
    if system_flag & _TRANSACTION_FLAGS not in (0, _PREPARED if is_half else 0):
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The system flag {system_flag} and the property {TRANSACTION} say different things of a transaction.",
            remedy="Send a half message with TRAN_MSG=true and end it with END_TRANSACTION.",
        )
    if is_half:
        properties.setdefault(PRODUCER_GROUP, producer_group)
