"""Pop requests: receive, acknowledge, and change the invisible time."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from millstream.broker.broker import Broker
from millstream.model.errors import ConsumeRefused
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PopRequest
from millstream.protocol.batches import record_of
from millstream.protocol.remoting.administration.static_topics import is_physical
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.popped import encode_empty_answer, encode_peek_answer, encode_popped
from millstream.protocol.remoting.messages.popping import (
    PopCall,
    decode_ack,
    decode_batch_ack,
    decode_change,
    decode_notification,
    decode_peek,
    decode_polling,
    decode_pop,
    encode_change_answer,
    encode_notification_answer,
    encode_polling_answer,
    wait_ms,
)
from millstream.transport.remoting_connection import Connection

__all__ = ["PopHandlers"]


class PopHandlers:
    """Codes 200050 to 200055 and 200151."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def pop(self, command: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        """Answer with deliveries; POLLING_TIMEOUT after the polling time, POLLING_FULL where too many wait."""
        call = decode_pop(command.ext)
        if call.from_last:
            self._broker.delivery.begin_at_last(call.request.group, call.request.topic)
        return self._pop(command, call)

    async def _pop(self, command: RemotingCommand, call: PopCall) -> RemotingCommand:
        sent = call.request
        left_ms = wait_ms(sent.wait_ms, call.born_ms, self._broker.clock.now_ms())
        request = replace(sent, wait_ms=left_ms)
        try:
            popped = await self._broker.delivery.pop(request)
        except ConsumeRefused as error:
            if error.name != "TOO_MANY_REQUESTS":
                raise
            return command.response(ResponseCode.POLLING_FULL, ext=self._nothing(request), remark=str(error))
        if not popped:
            return command.response(ResponseCode.POLLING_TIMEOUT, ext=self._nothing(request))
        records = self._broker.delivery.stored_records(request.topic, popped)
        rest = self._broker.delivery.count_undelivered(request.group, request.topic, request.queue_id)
        answer = encode_popped(popped, records, self._broker.name, rest)
        return command.response(ext=answer.ext, body_parts=answer.records)

    def ack(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Consume one delivery; NO_MESSAGE where there is none (any more).

        One that a reset discarded is passed over, as RocketMQ does; a proxy hears of it.
        """
        request = decode_ack(command.ext)
        refusal = self._refuse_misplaced(command, request)
        if refusal is not None:
            return refusal
        try:
            if request.in_time or not self._broker.delivery.is_discarded(request):
                self._broker.delivery.ack(request)
        except ConsumeRefused as error:
            return _no_delivery(command, error)
        return command.response()

    def batch_ack(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Consume many deliveries. Those that are none any more are passed over, as they will come again."""
        missed = 0
        for request in decode_batch_ack(command.body):
            try:
                self._broker.delivery.ack(request)
            except ConsumeRefused:
                missed += 1
        return command.response(ext={"missed": str(missed)})

    def change(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Make a delivery visible at another time; NO_MESSAGE where there is none (any more)."""
        request = decode_change(command.ext)
        refusal = self._refuse_misplaced(command, request)
        if refusal is not None:
            return refusal
        try:
            handle = self._broker.delivery.change_invisible(request)
        except ConsumeRefused as error:
            return _no_delivery(command, error)
        return command.response(ext=encode_change_answer(handle))

    async def peek(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer what would be popped next and leave it there; PULL_NOT_FOUND where there is nothing."""
        call = decode_peek(command.ext)
        found, rest = await self._broker.delivery.peek(
            call.group, call.topic, call.queue_id, call.max_messages, physical=is_physical(command.ext)
        )
        ext = encode_peek_answer(rest)
        if not found:
            return command.response(ResponseCode.PULL_NOT_FOUND, ext=ext)
        return command.response(ext=ext, body_parts=tuple(record_of(message) for message in found))

    async def notify(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Say whether there is something to pop, as soon as there is, at the latest after the polling time.

        Of a static topic it is told of all queues of this broker, and not of what its peers hold of them.
        """
        question = decode_notification(command.ext)
        left_ms = wait_ms(question.poll_ms, question.born_ms, self._broker.clock.now_ms())
        request = PopRequest(question.group, question.topic, 1, question.queue_id, wait_ms=left_ms)
        try:
            has_messages = await self._broker.delivery.wait_for_message(request)
        except ConsumeRefused as error:
            if error.name != "TOO_MANY_REQUESTS":
                raise
            return command.response(ext=encode_notification_answer(False, True))
        return command.response(ext=encode_notification_answer(has_messages))

    def polling(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """How many pops of a group wait for a queue, or for all queues."""
        waiting = self._broker.delivery.count_waiting_pops(*decode_polling(command.ext))
        return command.response(ext=encode_polling_answer(waiting))

    def _nothing(self, request: PopRequest) -> dict[str, str]:
        return encode_empty_answer(self._broker.clock.now_ms(), request.invisible_ms)

    def _refuse_misplaced(
        self, command: RemotingCommand, request: AckRequest | ChangeInvisibleRequest
    ) -> RemotingCommand | None:
        """The refusal of a delivery from a queue that is not there. Raises TOPIC_NOT_FOUND."""
        topic, queue_id = self._broker.topics.get(request.topic), request.handle.queue_id
        if self._broker.queues.is_readable(topic.name, queue_id):
            return None
        remark = f"The topic {topic.name!r} has {topic.read_queues} readable queues; {queue_id} is none of them."
        return command.response(ResponseCode.MESSAGE_ILLEGAL, remark=remark)


def _no_delivery(command: RemotingCommand, error: ConsumeRefused) -> RemotingCommand:
    if error.name != "INVALID_RECEIPT_HANDLE":
        raise error
    return command.response(ResponseCode.NO_MESSAGE, remark=str(error))
