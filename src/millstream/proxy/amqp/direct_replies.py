"""Direct reply-to: replies to a channel without a queue (https://www.rabbitmq.com/docs/direct-reply-to).

A client consumes the pseudo queue `amq.rabbitmq.reply-to` and sends requests with that as their `reply_to`; the proxy
puts an address in its place, and what is published to the address by the default exchange goes to the channel. Nothing
of it is stored, as with RabbitMQ: an answer to a channel that is gone is lost.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.protocol.amqp.frames import deliver_prefix
from millstream.protocol.amqp.method_codec import encode_short_text
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode

if TYPE_CHECKING:
    from millstream.proxy.amqp.channel import AmqpChannel

__all__ = ["REPLY_QUEUE", "DirectReplies", "is_reply_address"]

REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"
"""The pseudo queue; an address is this, a dot and 32 hexadecimal digits."""

_ADDRESS_BYTES: Final = 16


def is_reply_address(routing_key: str) -> bool:
    """Whether a routing key of the default exchange names a channel that waits for answers."""
    return routing_key.startswith(REPLY_QUEUE + ".")


@dataclass(slots=True)
class _ReplyConsumer:
    channel: AmqpChannel
    tag: str
    address: str


class DirectReplies:
    """The channels of a proxy that wait for answers."""

    def __init__(self) -> None:
        self._by_address: dict[str, _ReplyConsumer] = {}
        self._by_channel: dict[AmqpChannel, _ReplyConsumer] = {}

    def open(self, channel: AmqpChannel, tag: str, *, no_ack: bool) -> None:
        """Let a channel get answers. PRECONDITION_FAILED with acknowledgements, and where it does so already."""
        if not no_ack:
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if channel in self._by_channel:
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
        consumer = _ReplyConsumer(channel, tag, f"{REPLY_QUEUE}.{os.urandom(_ADDRESS_BYTES).hex()}")
        self._by_channel[channel] = self._by_address[consumer.address] = consumer

    def close(self, channel: AmqpChannel, tag: str | None = None) -> None:
        """The channel gets no more answers; nothing where it got none, or by another tag."""
        consumer = self._by_channel.get(channel)
        if consumer is not None and tag in (None, consumer.tag):
            del self._by_channel[channel]
            del self._by_address[consumer.address]

    def address_of(self, channel: AmqpChannel) -> str:
        """Where answers for the channel go. PRECONDITION_FAILED where it gets none."""
        consumer = self._by_channel.get(channel)
        if consumer is None:
            raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
        return consumer.address

    def is_known(self, address: str) -> bool:
        """Whether a channel waits at that address."""
        return address in self._by_address

    def send(self, address: str, properties: bytes, body: bytes) -> bool:
        """Whether a channel got the answer."""
        consumer = self._by_address.get(address)
        if consumer is None:
            return False
        channel = consumer.channel
        method = b"%b%b\x00\x00%b" % (
            deliver_prefix(consumer.tag),
            channel.skip_tag().to_bytes(8),
            encode_short_text(address),
        )
        channel.session.send_content(channel.number, method, properties, body)
        return True
