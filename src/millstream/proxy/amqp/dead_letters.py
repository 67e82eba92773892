"""Dead letters of AMQP queues: republished to the dead-letter exchange with RabbitMQ's header `x-death`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from millstream.client.outgoing import MessageIds
from millstream.model import properties as names
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.routing.routes import encode_further_keys, further_keys
from millstream.protocol.amqp.content import decode_properties, encode_properties
from millstream.protocol.amqp.field_table import (
    FieldTable,
    Timestamp,
    decode_table,
    encode_value,
    join_table,
    split_table,
)
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.publisher import AmqpPublisher
from millstream.proxy.amqp.sender_keys import COPIES, without_header
from millstream.proxy.amqp.stored_content import (
    place_of,
    routing_of,
    stored_body,
    view_content,
    wire_properties,
)
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.stored_body import body_of, unpack

__all__ = ["MAX_DEATHS", "AmqpDeadLetters", "with_death"]

MAX_DEATHS: Final = 32
"""Entries of `x-death` at most: one for each queue and reason; the oldest ones are left out."""

_EMPTY_TABLE: Final = b"\0\0\0\0"


class AmqpDeadLetters:
    """Sends them."""

    def __init__(self, publisher: AmqpPublisher, ids: MessageIds, clock: Clock) -> None:
        self._publisher = publisher
        self._ids = ids
        self._clock = clock

    async def send(self, host: VirtualHost, queue: AmqpQueue, message: StoredMessage, reason: str) -> bool:
        """Whether the message may leave its queue: it is stored for the dead-letter exchange, or nobody wants it."""
        exchange_name = queue.dead_letter_exchange
        exchange = None if exchange_name is None else host.exchanges.get(exchange_name)
        if exchange is None:
            return True
        key, further = place_of(message)[1], further_keys(message.properties)
        properties = wire_properties(message)
        if queue.dead_letter_key is not None:
            # The queue's key stands for all that the sender chose (RabbitMQ's rule).
            key, further, properties = queue.dead_letter_key, (), without_header(properties, COPIES)
        now_ms = self._clock.now_ms()
        topics = host.topics_of(exchange.name, (key, *further))
        with_reason = with_death(properties, message, queue.name, reason, now_ms)
        if not topics or with_reason is None:
            return True
        common = {**view_content(with_reason).stored, **routing_of(exchange.name, key)}
        common[names.ORIGIN_MESSAGE_ID] = message.message_id
        if further:
            common[names.AMQP_KEYS] = encode_further_keys(further)
        body = stored_body(body_of(await unpack(message)), common)
        outgoing = [
            OutgoingMessage(
                topic,
                body,
                {names.UNIQUE_KEY: self._ids.next(), **common},
                born_timestamp_ms=now_ms,
                born_host=message.born_host,
            )
            for topic in topics
        ]
        stored: asyncio.Future[MillstreamError | None] = asyncio.get_running_loop().create_future()
        self._publisher.publish_all(outgoing, stored.set_result)
        return await stored is None


def with_death(data: bytes, message: StoredMessage, queue: str, reason: str, now_ms: int) -> bytes | None:
    """The properties of a message that died in a queue; all other headers keep their bytes.

    None for one that has died there by expiring or overflowing without anybody having rejected it in between: it would
    go round for ever (RabbitMQ drops it, too).
    """
    content = decode_properties(data)
    raw = content.headers or _EMPTY_TABLE
    headers = decode_table(raw)[0]
    found = headers.get("x-death")
    known = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    same = [entry for entry in known if entry.get("queue") == queue and entry.get("reason") == reason]
    if same and reason != "rejected" and not any(entry.get("reason") == "rejected" for entry in known):
        return None
    exchange, key = place_of(message)
    count = same[0].get("count", 0) if same else 0
    entry: dict[str, Any] = {
        "count": (count if isinstance(count, int) else 0) + 1,
        "reason": reason,
        "queue": queue,
        "time": Timestamp(now_ms // 1000),
        "exchange": exchange,
        "routing-keys": [key, *_seen_copies(headers)],
    }
    if content.expiration is not None:
        entry["original-expiration"] = content.expiration
    deaths = [entry, *(one for one in known if one not in same)][:MAX_DEATHS]
    pairs = [(name, value) for name, value in split_table(raw) if name != "x-death"]
    added = {"x-first-death-reason": reason, "x-first-death-queue": queue, "x-first-death-exchange": exchange}
    pairs += [(name, encode_value(value)) for name, value in added.items() if name not in headers]
    pairs += [("x-last-death-reason", encode_value(reason)), ("x-last-death-queue", encode_value(queue))]
    pairs.append(("x-death", encode_value(deaths)))
    # Where the message goes now it must not expire again.
    return encode_properties(replace(content, headers=join_table(list(dict(pairs).items())), expiration=None))


def _seen_copies(headers: FieldTable) -> list[str]:
    """The keys beside its own that a message shows."""
    value = headers.get(COPIES)
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
