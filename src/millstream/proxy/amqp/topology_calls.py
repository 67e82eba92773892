"""Channel methods that wait for the store: declarations, bindings, purges, and basic.get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model.errors import MillstreamError
from millstream.protocol.amqp.basic_methods import BasicGet, BasicGetEmpty, BasicGetOk
from millstream.protocol.amqp.method_codec import AmqpMethod, encode_method
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode
from millstream.protocol.amqp.topology_methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from millstream.proxy.amqp.declarations import Declared, DeclaredBinding
from millstream.proxy.amqp.direct_replies import REPLY_QUEUE, is_reply_address
from millstream.proxy.amqp.stored_content import place_of, wire_properties
from millstream.proxy.stored_body import body_of, unpack

if TYPE_CHECKING:
    from millstream.proxy.amqp.channel import AmqpChannel

__all__ = [
    "bind_exchange",
    "bind_queue",
    "declare_exchange",
    "declare_queue",
    "delete_exchange",
    "delete_queue",
    "get_message",
    "purge_queue",
    "unbind_exchange",
    "unbind_queue",
]


async def declare_exchange(channel: AmqpChannel, wish: ExchangeDeclare) -> None:
    """exchange.declare."""
    session, host = channel.session, channel.session.host
    session.check_exchange(wish.exchange, passive=wish.passive)
    if wish.passive:
        host.declare_exchange(wish)
    else:
        if (alternate := wish.arguments.get("alternate-exchange")) is not None and not isinstance(alternate, str):
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, f"invalid alternate-exchange {alternate!r}")
        await session.topology.declare(host, lambda: host.declare_exchange(wish))
    _answer(channel, wish.no_wait, ExchangeDeclareOk())


async def delete_exchange(channel: AmqpChannel, wish: ExchangeDelete) -> None:
    """exchange.delete."""
    session, host = channel.session, channel.session.host
    session.check_delete_exchange(wish.exchange)
    await session.topology.remove(host, lambda: host.delete_exchange(wish.exchange, if_unused=wish.if_unused))
    _answer(channel, wish.no_wait, ExchangeDeleteOk())


async def bind_exchange(channel: AmqpChannel, wish: ExchangeBind) -> None:
    """exchange.bind."""
    binding = DeclaredBinding(wish.source, wish.destination, wish.routing_key, dict(wish.arguments), to_exchange=True)
    await _bind(channel, binding)
    _answer(channel, wish.no_wait, ExchangeBindOk())


async def unbind_exchange(channel: AmqpChannel, wish: ExchangeUnbind) -> None:
    """exchange.unbind."""
    binding = DeclaredBinding(wish.source, wish.destination, wish.routing_key, dict(wish.arguments), to_exchange=True)
    await _unbind(channel, binding)
    _answer(channel, wish.no_wait, ExchangeUnbindOk())


async def declare_queue(channel: AmqpChannel, wish: QueueDeclare) -> None:
    """queue.declare."""
    session, host = channel.session, channel.session.host
    name = wish.queue or (channel.queue_name if wish.passive else f"amq.gen-{session.random_name()}")
    if name == REPLY_QUEUE or is_reply_address(name):
        if name != REPLY_QUEUE and not session.replies.is_known(name):
            raise ChannelFailure(ReplyCode.NOT_FOUND, f"no queue '{name}' in vhost '{host.name}'")
        _answer(channel, wish.no_wait, QueueDeclareOk(name, 0, 1))
        return
    session.check_queue(name, passive=wish.passive)
    if wish.passive:
        host.declare_queue(wish, name, session.name)
        is_new = False
    else:
        is_new = await session.topology.declare(host, lambda: host.declare_queue(wish, name, session.name))
    channel.queue_name = name
    session.note_use(name)
    if not wish.no_wait:
        ready = 0 if is_new else await session.access_of(name).ready()
        _answer(channel, False, QueueDeclareOk(name, ready, session.consumers_of(name)))


async def bind_queue(channel: AmqpChannel, wish: QueueBind) -> None:
    """queue.bind; a blank queue, and then a blank key, stand for the queue that was declared last."""
    name = wish.queue or channel.queue_name
    key = channel.queue_name if not wish.queue and not wish.routing_key else wish.routing_key
    await _bind(channel, DeclaredBinding(wish.exchange, name, key, dict(wish.arguments)))
    _answer(channel, wish.no_wait, QueueBindOk())


async def unbind_queue(channel: AmqpChannel, wish: QueueUnbind) -> None:
    """queue.unbind."""
    name = wish.queue or channel.queue_name
    await _unbind(channel, DeclaredBinding(wish.exchange, name, wish.routing_key, dict(wish.arguments)))
    _answer(channel, False, QueueUnbindOk())


async def purge_queue(channel: AmqpChannel, wish: QueuePurge) -> None:
    """queue.purge."""
    session = channel.session
    queue = session.host.queue(wish.queue or channel.queue_name, session.name)
    session.check_consume(queue.name)
    removed = await session.access_of(queue.name).purge()
    _answer(channel, wish.no_wait, QueuePurgeOk(removed))


async def delete_queue(channel: AmqpChannel, wish: QueueDelete) -> None:
    """queue.delete."""
    session, host = channel.session, channel.session.host
    name = wish.queue or channel.queue_name
    session.check_delete_queue(name)
    ready = 0
    if name in host.queues:
        host.queue(name, session.name)
        if wish.if_unused and session.consumers_of(name):
            words = f"queue '{name}' in vhost '{host.name}' in use"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        ready = await session.access_of(name).ready()
        if wish.if_empty and ready:
            words = f"queue '{name}' in vhost '{host.name}' is not empty"
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
        await session.topology.remove(host, lambda: host.delete_queue(name, session.name))
    _answer(channel, wish.no_wait, QueueDeleteOk(ready))


async def get_message(channel: AmqpChannel, wish: BasicGet) -> None:
    """basic.get."""
    session = channel.session
    queue = session.host.queue(wish.queue or channel.queue_name, session.name)
    session.check_consume(queue.name)
    session.note_use(queue.name)
    access = session.access_of(queue.name)
    found = await (access.pop_best() if queue.max_priority else access.pop_any(1))
    if not found:
        _answer(channel, False, BasicGetEmpty())
        return
    (delivery,) = found
    try:
        message = await unpack(delivery.take_message())
    except MillstreamError:
        await access.put_back(found, uncounted=True)
        raise
    if channel.has_ended():
        await access.put_back(found, uncounted=True)
        return
    ready = await access.ready()
    if channel.has_ended():
        await access.put_back(found, uncounted=True)
        return
    if wish.no_ack:
        tag = channel.skip_tag()
        session.ack_soon(delivery)
    else:
        tag = channel.keep(delivery)
    method = BasicGetOk(tag, delivery.attempt > 1, *place_of(message), min(ready, 2**32 - 1))
    session.traffic.messages_out += 1
    session.send_content(channel.number, encode_method(method), wire_properties(message), body_of(message))


async def _bind(channel: AmqpChannel, binding: DeclaredBinding) -> None:
    session, host = channel.session, channel.session.host
    session.check_bind(binding)
    await session.topology.declare(host, lambda: host.bind(binding, session.name))


async def _unbind(channel: AmqpChannel, binding: DeclaredBinding) -> None:
    session, host = channel.session, channel.session.host
    session.check_bind(binding)

    def find() -> list[Declared]:
        found = host.unbind(binding, session.name)
        return [] if found is None else [found]

    await session.topology.remove(host, find)


def _answer(channel: AmqpChannel, no_wait: bool, method: AmqpMethod) -> None:
    if not no_wait:
        channel.session.send(channel.number, method)
