"""Stores messages: one per request, a batch expanded to one record each, or many requests at once.

Ordinary sends that arrive together share one look at their topic, one append and one write of their answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from millstream.broker.broker import Broker
from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.broker.remoting.ordinary_sends import MAX_GATHERED_MESSAGES, accept_run, read_ordinary_sends
from millstream.model.errors import MessageRefused, MillstreamError, Refused
from millstream.model.handles import RecallHandle
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.operations import SendReceipt
from millstream.model.properties import CLUSTER, PRODUCER_GROUP, REPLY_TO_CLIENT, TRANSACTION, UNIQUE_KEY
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.batch import decode_batch
from millstream.protocol.remoting.messages.message_requests import Recall
from millstream.protocol.remoting.messages.sends import (
    BORN_HOST,
    REGION,
    SendAnswers,
    SendCall,
    batch_places,
    decode_send,
    sent_fields,
)
from millstream.protocol.remoting.request_shape import ShapedRun
from millstream.protocol.remoting.send_shape import SendShape, SentRecord
from millstream.store.write_batch import AnyPlace
from millstream.transport.remoting_connection import Connection
from millstream.transport.request_batches import BatchHandler, RequestBatch

__all__ = ["MAX_GATHERED_MESSAGES", "REGION", "SendBatchHandler", "SendBatcher", "SendHandlers", "answer_fields"]


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


_General = Callable[[RemotingCommand, Connection], Awaitable[RemotingCommand]]


class SendBatchHandler(BatchHandler):
    """Code 310. `general` answers what is not ordinary."""

    def __init__(self, broker: Broker, batcher: SendBatcher, general: _General) -> None:
        self._broker = broker
        self._batcher = batcher
        self._general = general
        self._loop = asyncio.get_running_loop()
        self._answers = SendAnswers(broker.delivery.offset_id_prefix)

    def __call__(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        return self._general(command, connection)

    def take(self, commands: Sequence[RemotingCommand], start: int, connection: Connection) -> RequestBatch | None:
        """Take the ordinary sends of one topic from `start` on, `MAX_GATHERED_MESSAGES` at most."""
        topic = self._find_topic(commands[start].ext.get("b"))
        if topic is None:
            return None
        return self._store(topic, read_ordinary_sends(commands, start, topic, connection.peer))

    def take_run(self, run: ShapedRun, connection: Connection) -> RequestBatch | None:
        """The same of sends that are alike."""
        topic = self._find_topic(run.shape.topic) if isinstance(run.shape, SendShape) else None
        return None if topic is None else self._store(topic, accept_run(run, topic, connection.peer))

    def _store(self, topic: TopicConfig, records: Sequence[SentRecord]) -> RequestBatch | None:
        if not records:
            return None
        frames: asyncio.Future[bytes] = self._loop.create_future()
        try:
            self._broker.delivery.store_plain(topic, records, partial(self._note_end, records, frames))
        except MillstreamError:
            # The general way says what is wrong, to each.
            return None
        return RequestBatch(len(records), frames)

    def _find_topic(self, name: str | None) -> TopicConfig | None:
        if not name or name.startswith(RETRY_PREFIX) or not self._batcher.is_free(name):
            return None
        return self._broker.delivery.plain_topic(name)

    def _note_end(
        self,
        records: Sequence[SentRecord],
        frames: asyncio.Future[bytes],
        _places: Sequence[AnyPlace],
        error: BaseException | None,
    ) -> None:
        if frames.done():
            return
        if error is not None:
            frames.set_exception(error)
            return
        frames.set_result(self._answers.frames(records))


Answering = Callable[[list[SendReceipt]], RemotingCommand]
"""Makes the answer of a send from the receipts of its messages."""


@dataclass(frozen=True, slots=True)
class _Sender:
    """Who waits for a part of a group."""

    answering: Answering
    future: asyncio.Future[RemotingCommand]

    def succeed(self, receipts: list[SendReceipt]) -> None:
        if not self.future.done():
            self.future.set_result(self.answering(receipts))

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class _Group:
    """Messages for one call, and their senders: one for each message, or one for all."""

    topic: str
    typed: bool
    messages: list[OutgoingMessage] = field(default_factory=list)
    senders: list[_Sender] = field(default_factory=list)


class SendBatcher:
    """Gathers the sends of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._groups: list[_Group] = []
        self._open: dict[str, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: Counter[str] = Counter()
        self._splits: dict[str, asyncio.Future[None]] = {}

    def add(self, message: OutgoingMessage, answering: Answering, *, typed: bool) -> asyncio.Future[RemotingCommand]:
        """Store one message. Sends of one topic are stored in the order of the calls."""
        if message.queue_id is None:
            # The broker chooses one queue for all messages of a call, so those without a queue go alone.
            return self.add_batch([message], answering, typed=typed)
        group = self._open.get(message.topic)
        if group is None or group.typed is not typed or len(group.messages) >= MAX_GATHERED_MESSAGES:
            group = self._open[message.topic] = self._new_group(message.topic, typed=typed)
        sender = _Sender(answering, self._loop.create_future())
        group.messages.append(message)
        group.senders.append(sender)
        return sender.future

    def add_batch(
        self, messages: list[OutgoingMessage], answering: Answering, *, typed: bool
    ) -> asyncio.Future[RemotingCommand]:
        """Store messages of one topic, all or none."""
        for message in messages[:1]:
            self._open.pop(message.topic, None)
        sender = _Sender(answering, self._loop.create_future())
        group = self._new_group(messages[0].topic if messages else "", typed=typed)
        group.messages = messages
        group.senders.append(sender)
        return sender.future

    def is_free(self, topic: str) -> bool:
        """Whether no send of the topic is under way here, so that what is stored past this cannot overtake one."""
        return topic not in self._under_way

    def _new_group(self, topic: str, *, typed: bool) -> _Group:
        self._under_way[topic] += 1
        if not self._groups:
            self._loop.call_soon(self._send_gathered)
        group = _Group(topic, typed)
        self._groups.append(group)
        return group

    def _send_gathered(self) -> None:
        groups, self._groups = self._groups, []
        self._open.clear()
        for group in groups:
            task = self._loop.create_task(self._send(group))
            self._tasks.add(task)
            task.add_done_callback(partial(self._note_end, group.topic))

    def _note_end(self, topic: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._under_way[topic] -= 1
        if not self._under_way[topic]:
            del self._under_way[topic]

    async def _send(self, group: _Group) -> None:
        while (split := self._splits.get(group.topic)) is not None:
            await asyncio.wait((split,))
        await self._store(group)

    async def _split(self, group: _Group) -> None:
        """Store each message of a refused group by itself, so that one bad message fails no other. The groups behind it
        wait meanwhile: they must not overtake it."""
        split = self._splits[group.topic] = self._loop.create_future()
        try:
            parts = zip(group.messages, group.senders, strict=True)
            await asyncio.gather(
                *(self._store(_Group(group.topic, group.typed, [message], [sender])) for message, sender in parts)
            )
        finally:
            del self._splits[group.topic]
            split.set_result(None)

    async def _store(self, group: _Group) -> None:
        messages, senders = group.messages, group.senders
        try:
            receipts = await self._broker.delivery.send(messages, typed=group.typed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the senders' answer
            if isinstance(error, Refused) and len(senders) > 1:
                await self._split(group)
            else:
                for sender in senders:
                    sender.fail(error)
            return
        if len(senders) == 1:
            senders[0].succeed(receipts)
        else:
            for sender, receipt in zip(senders, receipts, strict=True):
                sender.succeed([receipt])
