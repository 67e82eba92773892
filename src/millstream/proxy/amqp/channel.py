"""One channel of an AMQP connection: handles its methods.

Methods are carried out in their order. What needs no waiting is done in the turn in which it came; behind a method that
has to wait for the store, all later ones of its channel wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.model.errors import AccessRefused, MillstreamError
from millstream.protocol.amqp.basic_methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    ConfirmSelect,
    ConfirmSelectOk,
)
from millstream.protocol.amqp.confirms import Confirms
from millstream.protocol.amqp.content_intake import Publication
from millstream.protocol.amqp.deliveries import Credit, DeliveryTags
from millstream.protocol.amqp.frames import deliver_prefix
from millstream.protocol.amqp.method_codec import AmqpMethod, encode_short_text
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ConnectionFailure, ReplyCode
from millstream.protocol.amqp.session_methods import ChannelClose, ChannelFlow, ChannelFlowOk
from millstream.protocol.amqp.topology_methods import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from millstream.proxy.amqp import topology_calls
from millstream.proxy.amqp.direct_replies import REPLY_QUEUE
from millstream.proxy.amqp.publication import outgoing_messages
from millstream.proxy.amqp.queue_reader import AmqpConsumer, AmqpDelivery
from millstream.proxy.amqp.refusals import channel_failure
from millstream.proxy.amqp.stored_content import place_of, wire_properties
from millstream.proxy.stored_body import body_of
from millstream.proxy.throttle import Caller

if TYPE_CHECKING:
    from millstream.proxy.amqp.session import AmqpSession

__all__ = ["MAX_CONSUMERS", "MAX_WAITING_METHODS", "THROTTLE_POLL_S", "AmqpChannel"]

_log = logging.getLogger(__name__)

MAX_WAITING_METHODS: Final = 1_000
"""Methods and messages of a channel that wait behind one that has to wait; over it the connection is not read."""

MAX_CONSUMERS: Final = 1_000
"""Consumers of a channel at most."""

THROTTLE_POLL_S: Final = 0.05
"""How often a client that publishes more than it may is looked at again."""

_NO_ACK_ROOM: Final = 32
"""Messages that a consumer without acknowledgements gets at a time, as long as the client reads them."""

_Work = AmqpMethod | Publication


class AmqpChannel:
    """From its opening to `end`, which is called once."""

    def __init__(self, session: AmqpSession, number: int) -> None:
        self.session = session
        self.number = number
        self.consumers: dict[str, AmqpConsumer] = {}
        self.queue_name = ""
        """The queue that was declared last, which a blank name stands for."""
        self._is_over = False
        self._confirms: Confirms | None = None
        self._held_confirms: list[tuple[int, bool]] = []
        self._unstored = 0
        self._all_stored: asyncio.Future[None] | None = None
        self._tags: DeliveryTags[AmqpDelivery] = DeliveryTags()
        self._prefetch = 0
        self._credit = Credit()
        self._flows = True
        self._waiting: deque[_Work] = deque()
        self._working: asyncio.Task[None] | None = None

    @property
    def is_congested(self) -> bool:
        """Whether so much waits that the connection should not be read."""
        return len(self._waiting) > MAX_WAITING_METHODS

    def has_ended(self) -> bool:
        """Whether nothing is carried out any more."""
        return self._is_over

    # what arrives

    def take(self, work: _Work) -> None:
        """A method or a message. Raises AmqpFailure, with which the channel or the connection ends."""
        if self._working is not None:
            self._waiting.append(work)
            return
        if isinstance(work, Publication):
            if not self.session.host.bounded and not self.session.throttle.has_rules:
                self._publish(work)
                return
        elif (handle := _HANDLERS.get(type(work))) is not None:
            handle(self, work)
            return
        elif type(work) not in _WAITING_HANDLERS:
            raise ConnectionFailure(ReplyCode.NOT_IMPLEMENTED, f"{type(work).__name__} is not implemented")
        self._waiting.append(work)
        self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Carry out what waits, in its order."""
        try:
            while self._waiting and not self.has_ended():
                work = self._waiting.popleft()
                if isinstance(work, Publication):
                    await self._await_turn(len(work.body))
                    await self._publish_bounded(work)
                    continue
                handle = _HANDLERS.get(type(work))
                if handle is not None:
                    handle(self, work)
                    continue
                await self._wait_until_stored()
                if self.has_ended():
                    return
                wait = _WAITING_HANDLERS.get(type(work))
                if wait is None:
                    raise ConnectionFailure(ReplyCode.NOT_IMPLEMENTED, f"{type(work).__name__} is not implemented")
                await self._carry_out(wait, work)
        except AmqpFailure as failure:
            self._working = None
            self.session.fail_channel(self, failure, work.method_id if isinstance(work, AmqpMethod) else (60, 40))
        finally:
            self._working = None
            self.session.flush_soon()

    async def _carry_out(self, wait: Callable[[AmqpChannel, Any], Awaitable[None]], work: AmqpMethod) -> None:
        try:
            await wait(self, work)
        except MillstreamError as error:
            raise channel_failure(error) from error
        except (AmqpFailure, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("%s failed", type(work).__name__)
            words = f"{type(work).__name__} failed: {type(error).__name__}"
            raise ConnectionFailure(ReplyCode.INTERNAL_ERROR, words) from error

    async def _wait_until_stored(self) -> None:
        """What was published before must be there for what follows."""
        if self._unstored:
            self._all_stored = asyncio.get_running_loop().create_future()
            await self._all_stored
            self._all_stored = None

    # publishing

    async def _await_turn(self, size_bytes: int) -> None:
        """Wait until the client may publish so much; meanwhile what it sends waits, and then is not read."""
        session = self.session
        while session.throttle.has_rules and not self.has_ended():
            try:
                session.throttle.admit(Caller(session.client_name, "", session.user), size_bytes, session.now_s())
            except AccessRefused:
                await asyncio.sleep(THROTTLE_POLL_S)
            else:
                return

    async def _publish_bounded(self, publication: Publication) -> None:
        """Publish, where queues may be full: those that refuse new messages are asked, others drop their oldest."""
        bounded = self.session.bounded_takers(publication)
        if not bounded:
            self._publish(publication)
            return
        await self._wait_until_stored()
        for queue in bounded:
            if queue.refuses_overflow and not await self.session.has_room(queue, len(publication.body)):
                if self._confirms is not None:
                    self._note_settled(self._confirms.next_tag(), False)
                return
        self._publish(publication, held_back=True)
        await self._wait_until_stored()
        for queue in bounded:
            if not queue.refuses_overflow:
                await self.session.enforce_length(queue)
        self._let_settle()

    def _publish(self, publication: Publication, *, held_back: bool = False) -> None:
        session = self.session
        if publication.immediate:
            raise ConnectionFailure(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
        try:
            messages = outgoing_messages(self, publication)
        except MillstreamError as error:
            raise channel_failure(error) from error
        tag = self._confirms.next_tag() if self._confirms is not None else 0
        if not messages:
            if tag:
                self._note_settled(tag, True)
            return
        self._unstored += 1
        session.traffic.messages_in += 1
        session.publisher.publish_all(messages, partial(self._note_outcome, tag, held_back=held_back))

    def _note_outcome(self, tag: int, error: MillstreamError | None, *, held_back: bool = False) -> None:
        self._unstored -= 1
        if not self._unstored and self._all_stored is not None and not self._all_stored.done():
            self._all_stored.set_result(None)
        if self.has_ended():
            return
        if error is not None and not tag:
            # Without confirms this is the only way to tell.
            self.session.fail_channel(self, channel_failure(error), BasicPublish.method_id)
            return
        if tag and held_back:
            self._held_confirms.append((tag, error is None))
        elif tag:
            self._note_settled(tag, error is None)

    def _let_settle(self) -> None:
        """Confirm what was held back until full queues had dropped their oldest messages."""
        held, self._held_confirms = self._held_confirms, []
        for tag, is_stored in held:
            self._note_settled(tag, is_stored)

    def _note_settled(self, tag: int, is_stored: bool) -> None:
        assert self._confirms is not None
        self._confirms.settle(tag, is_stored)
        self.session.confirm_soon(self)

    def send_confirms(self) -> None:
        """Tell the client what has been settled by now."""
        if self.has_ended() or self._confirms is None:
            return
        for one in self._confirms.take():
            if one.is_stored:
                self.session.send(self.number, BasicAck(one.tag, one.is_multiple))
            else:
                self.session.send(self.number, BasicNack(one.tag, one.is_multiple, False))

    # delivering

    def room_of(self, consumer: AmqpConsumer) -> int:
        """How many deliveries more a consumer may get now."""
        if not self._flows or not self.session.takes_more:
            return 0
        return _NO_ACK_ROOM if consumer.no_ack else min(consumer.credit.left, self._credit.left)

    def deliver(self, consumer: AmqpConsumer, delivery: AmqpDelivery) -> None:
        """Send a message to a consumer."""
        message = delivery.take_message()
        if consumer.no_ack:
            tag = self._tags.skip()
            self.session.ack_soon(delivery)
        else:
            delivery.consumer = consumer
            tag = self._tags.add(delivery)
            consumer.credit.used += 1
            self._credit.used += 1
        exchange, key = place_of(message)
        method = b"%b%b%b%b%b" % (
            consumer.prefix,
            tag.to_bytes(8),
            b"\x01" if delivery.attempt > 1 else b"\x00",
            encode_short_text(exchange),
            encode_short_text(key),
        )
        self.session.traffic.messages_out += 1
        self.session.send_content(self.number, method, wire_properties(message), body_of(message))

    def keep(self, delivery: AmqpDelivery) -> int:
        """The tag of a message that was asked for."""
        self._credit.used += 1
        return self._tags.add(delivery)

    def skip_tag(self) -> int:
        """The tag of a message that needs no acknowledgement."""
        return self._tags.skip()

    def list_unsettled(self) -> list[AmqpDelivery]:
        """The deliveries that the client has not settled."""
        return self._tags.items()

    def _free(self, deliveries: list[AmqpDelivery]) -> None:
        """They are no longer under way."""
        for delivery in deliveries:
            self._credit.used -= 1
            if delivery.consumer is not None:
                delivery.consumer.credit.used -= 1
        self.wake_readers()

    def wake_readers(self) -> None:
        """Consumers may have room again."""
        for consumer in self.consumers.values():
            self.session.reader_of(consumer).wake()

    # methods that need no waiting

    def _ack(self, wish: BasicAck) -> None:
        found = self._tags.take(wish.delivery_tag, multiple=wish.multiple)
        for delivery in found:
            self.session.ack_soon(delivery)
        self._free(found)

    def _nack(self, wish: BasicNack) -> None:
        self._give_back(self._tags.take(wish.delivery_tag, multiple=wish.multiple), wish.requeue)

    def _reject(self, wish: BasicReject) -> None:
        self._give_back(self._tags.take(wish.delivery_tag, multiple=False), wish.requeue)

    def _give_back(self, found: list[AmqpDelivery], requeue: bool) -> None:
        (self.session.put_back if requeue else self.session.dead_letter)(found)
        self._free(found)

    def _qos(self, wish: BasicQos) -> None:
        if wish.prefetch_bytes:
            raise ConnectionFailure(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({wish.prefetch_bytes})")
        if wish.is_global:
            self._credit.limit = wish.prefetch_count
            self.wake_readers()
        else:
            self._prefetch = wish.prefetch_count
        self.session.send(self.number, BasicQosOk())

    def _recover(self, wish: BasicRecover | BasicRecoverAsync) -> None:
        # RabbitMQ: not to requeue is not implemented.
        if not wish.requeue:
            raise ConnectionFailure(ReplyCode.NOT_IMPLEMENTED, "recover with requeue=false")
        self._give_back(self._tags.take_all(), True)
        if isinstance(wish, BasicRecover):
            self.session.send(self.number, BasicRecoverOk())

    def _flow(self, wish: ChannelFlow) -> None:
        self._flows = wish.active
        self.session.send(self.number, ChannelFlowOk(wish.active))
        self.wake_readers()

    def _select_confirms(self, wish: ConfirmSelect) -> None:
        self._confirms = self._confirms or Confirms()
        if not wish.no_wait:
            self.session.send(self.number, ConfirmSelectOk())

    def _consume(self, wish: BasicConsume) -> None:
        session = self.session
        if wish.consumer_tag in self.consumers:
            words = f"attempt to reuse consumer tag '{wish.consumer_tag}'"
            raise ConnectionFailure(ReplyCode.NOT_ALLOWED, words)
        if len(self.consumers) >= MAX_CONSUMERS:
            words = f"the channel has {len(self.consumers)} consumers, which is the limit"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        name = wish.queue or self.queue_name
        tag = wish.consumer_tag or f"amq.ctag-{session.random_name()}"
        if name == REPLY_QUEUE:
            session.replies.open(self, tag, no_ack=wish.no_ack)
        else:
            priority = wish.arguments.get("x-priority", 0)
            consumer = AmqpConsumer(
                self,
                tag,
                wish.no_ack,
                wish.exclusive,
                priority if isinstance(priority, int) else 0,
                Credit(self._prefetch),
                deliver_prefix(tag),
            )
            session.check_consume(name)
            session.add_consumer(name, consumer)
            self.consumers[tag] = consumer
        if not wish.no_wait:
            session.send(self.number, BasicConsumeOk(tag))

    def _cancel(self, wish: BasicCancel) -> None:
        consumer = self.consumers.pop(wish.consumer_tag, None)
        if consumer is not None:
            self.session.remove_consumer(consumer)
        else:
            self.session.replies.close(self, wish.consumer_tag)
        if not wish.no_wait:
            self.session.send(self.number, BasicCancelOk(wish.consumer_tag))

    # the end

    def cancel_consumer(self, consumer: AmqpConsumer) -> None:
        """The queue of a consumer is gone; a client that understands it is told."""
        if self.consumers.pop(consumer.tag, None) is not None and self.session.can("consumer_cancel_notify"):
            self.session.send(self.number, BasicCancel(consumer.tag, True))

    def _close(self, _wish: ChannelClose) -> None:
        self.session.end_channel(self)

    def end(self) -> None:
        """Nothing more is carried out; what is not settled can be delivered to others at once."""
        self._is_over = True
        self._waiting.clear()
        for consumer in list(self.consumers.values()):
            self.session.remove_consumer(consumer)
        self.consumers.clear()
        self.session.replies.close(self)
        self.session.put_back(self._tags.take_all())


_HANDLERS: Final[dict[type[AmqpMethod], Callable[[AmqpChannel, Any], None]]] = {
    BasicAck: AmqpChannel._ack,
    BasicNack: AmqpChannel._nack,
    BasicReject: AmqpChannel._reject,
    BasicQos: AmqpChannel._qos,
    BasicRecover: AmqpChannel._recover,
    BasicRecoverAsync: AmqpChannel._recover,
    BasicConsume: AmqpChannel._consume,
    BasicCancel: AmqpChannel._cancel,
    ChannelFlow: AmqpChannel._flow,
    ChannelClose: AmqpChannel._close,
    ConfirmSelect: AmqpChannel._select_confirms,
}

_WAITING_HANDLERS: Final[dict[type[AmqpMethod], Callable[[AmqpChannel, Any], Awaitable[None]]]] = {
    QueueDeclare: topology_calls.declare_queue,
    QueueBind: topology_calls.bind_queue,
    QueueUnbind: topology_calls.unbind_queue,
    QueuePurge: topology_calls.purge_queue,
    QueueDelete: topology_calls.delete_queue,
    ExchangeDeclare: topology_calls.declare_exchange,
    ExchangeDelete: topology_calls.delete_exchange,
    ExchangeBind: topology_calls.bind_exchange,
    ExchangeUnbind: topology_calls.unbind_exchange,
    BasicGet: topology_calls.get_message,
}
"""What has to wait for the store."""
