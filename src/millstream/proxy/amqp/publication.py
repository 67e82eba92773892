"""Converts a published message to the records that store it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from millstream.broker.delivery.admission import is_plain
from millstream.model import properties as names
from millstream.model.message import MAX_BODY_BYTES, OutgoingMessage, SystemFlag
from millstream.model.properties import encode_properties as encode_stored
from millstream.model.topic import MessageType
from millstream.protocol.amqp.basic_methods import BasicReturn
from millstream.protocol.amqp.content import decode_properties, encode_properties
from millstream.protocol.amqp.content_intake import Publication
from millstream.protocol.amqp.method_codec import encode_method
from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.amqp.declarations import DEFAULT_EXCHANGE, DELAYED_TYPE, Exchange
from millstream.proxy.amqp.direct_replies import REPLY_QUEUE, is_reply_address
from millstream.proxy.amqp.sender_keys import check_sender_keys
from millstream.proxy.amqp.stored_content import PUBLISHED_TO, ContentView, routing_of, stored_body, view_content

if TYPE_CHECKING:
    from millstream.proxy.amqp.channel import AmqpChannel

__all__ = ["MAX_DELAY_MS", "outgoing_messages"]

MAX_DELAY_MS: Final = 3 * 24 * 3600 * 1000
"""Milliseconds that a message may be delayed at most."""

_DELAY: Final = "x-delay"
_UNIQUE_KEY: Final = names.UNIQUE_KEY.encode()

_KNOWN: Final = 1024
"""Pairs of properties and routing that are remembered: a publisher sends the same ones again and again."""


def outgoing_messages(channel: AmqpChannel, publication: Publication) -> list[OutgoingMessage | PlainRecord]:
    """What is to be stored, in a topic each; nothing for a message that nobody gets.

    A message that was mandatory and that no queue gets goes back to the client. Raises AmqpFailure, and what the access
    control refuses.
    """
    session, host = channel.session, channel.session.host
    exchange = host.exchange(publication.exchange)
    if exchange.internal:
        words = f"cannot publish to internal exchange '{exchange.name}' in vhost '{host.name}'"
        raise ChannelFailure(ReplyCode.ACCESS_REFUSED, words)
    properties, view = _checked_properties(channel, publication.properties)
    key = publication.routing_key
    is_answer = exchange.name == DEFAULT_EXCHANGE and is_reply_address(key)
    if is_answer:
        if not session.replies.send(key, view.properties, publication.body) and publication.mandatory:
            _give_back(channel, publication, view)
        if not view.further_keys:
            return []
    stored_in = exchange.name
    if not is_answer and (publication.mandatory or exchange.alternate is not None):
        taker = host.find_taker(exchange.name, key, view.headers, view.further_keys)
        if taker is not None:
            stored_in = taker
        elif publication.mandatory:
            _give_back(channel, publication, view)
    topics = host.topics_of(stored_in, (key, *view.further_keys))
    for topic in topics:
        session.check_publish(topic)
    return [_record(channel, publication, exchange, stored_in, topic, properties, view) for topic in topics]


def _record(
    channel: AmqpChannel,
    publication: Publication,
    exchange: Exchange,
    stored_in: str,
    topic: str,
    properties: bytes,
    view: ContentView,
) -> OutgoingMessage | PlainRecord:
    """What is stored in one topic."""
    session, key = channel.session, publication.routing_key
    now_ms, unique, body = session.clock.now_ms(), session.ids.next(), publication.body
    is_ordinary = stored_in == exchange.name and exchange.kind != DELAYED_TYPE and view.expiration_ms is None
    ordinary = _ordinary_of(properties, stored_in, key) if is_ordinary and session.publisher.takes_plain else None
    if ordinary is not None and 0 < len(body) <= MAX_BODY_BYTES:
        common, text = ordinary
        stored = b"%b\x01%b\x02%b" % (_UNIQUE_KEY, unique.encode(), text)
        return PlainRecord(topic, 0, body, {names.UNIQUE_KEY: unique, **common}, stored, 0, now_ms, session.peer)
    held = {names.UNIQUE_KEY: unique, **view.stored, **routing_of(stored_in, key)}
    if stored_in != exchange.name:
        held[PUBLISHED_TO] = exchange.name
    if view.expiration_ms is not None:
        held[names.EXPIRES_MS] = str(now_ms + view.expiration_ms)
    kind = _delay(exchange, view, held, now_ms)
    body = stored_body(body, held)
    return OutgoingMessage(topic, body, held, kind, None, SystemFlag.NONE, 0, now_ms, session.peer)


@lru_cache(maxsize=_KNOWN)
def _ordinary_of(properties: bytes, exchange: str, key: str) -> tuple[Mapping[str, str], bytes] | None:
    """What records of messages with these properties and this routing have in common, and its text; None where the
    broker has to look at each of them."""
    common = {**view_content(properties).stored, **routing_of(exchange, key)}
    return (common, encode_stored(common)) if is_plain(common, 0) else None


def _checked_properties(channel: AmqpChannel, properties: bytes) -> tuple[bytes, ContentView]:
    """The properties that are to be stored, and what they say."""
    view = view_content(properties)
    check_sender_keys(view.headers, view.further_keys)
    if view.reply_to == REPLY_QUEUE:
        properties = _with_reply_address(channel, properties)
        view = view_content(properties)
    user = channel.session.user
    if view.user_id is not None and view.user_id != user:
        words = f"user_id property set to '{view.user_id}' but authenticated user was '{user}'"
        raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
    return properties, view


def _delay(exchange: Exchange, view: ContentView, held: dict[str, str], now_ms: int) -> MessageType:
    """Note when the message is due; the type that it has by that."""
    if exchange.kind != DELAYED_TYPE:
        return MessageType.NORMAL
    delay_ms = view.headers.get(_DELAY)
    if not isinstance(delay_ms, int) or isinstance(delay_ms, bool) or delay_ms <= 0:
        return MessageType.NORMAL
    if delay_ms > MAX_DELAY_MS:
        words = f"x-delay of {delay_ms} ms is over the limit of {MAX_DELAY_MS} ms"
        raise ChannelFailure(ReplyCode.PRECONDITION_FAILED, words)
    held[names.DELIVERY_TIME_MS] = str(now_ms + delay_ms)
    return MessageType.DELAY


def _with_reply_address(channel: AmqpChannel, properties: bytes) -> bytes:
    content = decode_properties(properties)
    content.reply_to = channel.session.replies.address_of(channel)
    return encode_properties(content)


def _give_back(channel: AmqpChannel, publication: Publication, view: ContentView) -> None:
    method = BasicReturn(ReplyCode.NO_ROUTE, "NO_ROUTE", publication.exchange, publication.routing_key)
    channel.session.send_content(channel.number, encode_method(method), view.properties, publication.body)
