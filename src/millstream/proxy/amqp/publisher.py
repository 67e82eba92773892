"""Stores published messages: those of one turn for one topic are stored together."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.protocol.record_encoder import PlainRecord
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.local import delivery_of

__all__ = ["AmqpPublisher", "Settled"]

_log = logging.getLogger(__name__)

_FULL: Final = frozenset({"DISK_FULL", "STORE_FAILED", "BROKER_DRAINED", "TOO_FEW_REPLICAS"})
"""Refusals that hold for every message, until somebody does something about it."""

Settled = Callable[[MillstreamError | None], None]
"""Called once a message is stored (None), or with what refused it."""


@dataclass(slots=True)
class _Waiting:
    message: OutgoingMessage | PlainRecord
    settled: Settled


class AmqpPublisher:
    """One for a proxy; all from one event loop. `make_topic` makes a topic that is missing.

    The standard exchanges have no topic before something is published to them or bound.
    """

    def __init__(self, backend: BrokerBackend, make_topic: Callable[[str], Awaitable[None]]) -> None:
        self.on_full: Callable[[MillstreamError], None] = lambda _error: None
        """Called where the brokers take no messages for now."""
        self._backend = backend
        self._delivery = delivery_of(backend)
        self._make_topic = make_topic
        self._waiting: defaultdict[str, list[_Waiting]] = defaultdict(list)
        self._sends: set[asyncio.Task[None]] = set()
        self._flush_is_due = False

    @property
    def takes_plain(self) -> bool:
        """Whether records that need no closer look are stored with less work."""
        return self._delivery is not None

    def publish(self, message: OutgoingMessage | PlainRecord, settled: Settled) -> None:
        """Store the message with the others of this turn; of a record the queue is chosen here."""
        self._waiting[message.topic].append(_Waiting(message, settled))
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def publish_all(self, messages: Sequence[OutgoingMessage | PlainRecord], settled: Settled) -> None:
        """Store messages that are one to whoever published them: told once, with the first refusal if there is one."""
        if len(messages) == 1:
            self.publish(messages[0], settled)
            return
        left, refusals = len(messages), list[MillstreamError]()

        def note(error: MillstreamError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                refusals.append(error)
            if not left:
                settled(refusals[0] if refusals else None)

        for message in messages:
            self.publish(message, note)

    async def close(self) -> None:
        """Return once all that was published is settled."""
        self._flush()
        while self._sends:
            await asyncio.gather(*self._sends, return_exceptions=True)

    def _flush(self) -> None:
        self._flush_is_due = False
        loop = asyncio.get_running_loop()
        waiting, self._waiting = self._waiting, defaultdict(list)
        for messages in waiting.values():
            task = loop.create_task(self._send(messages))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _store(self, wanted: list[OutgoingMessage | PlainRecord]) -> None:
        delivery, topic = self._delivery, wanted[0].topic
        config = None if delivery is None else delivery.plain_topic(topic)
        if delivery is not None and config is not None:
            records = [one for one in wanted if isinstance(one, PlainRecord)]
            if len(records) == len(wanted):
                queue_id = delivery.take_turns(config, 1) % config.write_queues
                for record in records:
                    record.queue_id = queue_id
                await delivery.send_plain(config, records)
                return
        messages = [_as_message(one) if isinstance(one, PlainRecord) else one for one in wanted]
        try:
            await self._backend.send(messages)
        except NameRefused as error:
            if error.name != "TOPIC_NOT_FOUND":
                raise
            await self._make_topic(topic)
            await self._backend.send(messages)

    async def _send(self, waiting: Sequence[_Waiting]) -> None:
        try:
            await self._store([one.message for one in waiting])
        except MillstreamError as error:
            if len(waiting) > 1 and not isinstance(error, ConnectionFailed):
                # A send is all or none: one message that is refused must not take the others with it.
                for one in waiting:
                    await self._send((one,))
                return
            if error.name in _FULL:
                self.on_full(error)
            for one in waiting:
                one.settled(error)
        except Exception as error:  # noqa: BLE001 - whoever published must be told, whatever it was
            _log.exception("messages for %s could not be stored", waiting[0].message.topic)
            failure = MillstreamError("INTERNAL_ERROR", f"The message could not be stored: {type(error).__name__}.")
            for one in waiting:
                one.settled(failure)
        else:
            for one in waiting:
                one.settled(None)


def _as_message(record: PlainRecord) -> OutgoingMessage:
    """The same message, for brokers that look at each."""
    return OutgoingMessage(
        record.topic,
        record.body,
        record.properties,
        system_flag=SystemFlag(record.system_flag),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
    )
