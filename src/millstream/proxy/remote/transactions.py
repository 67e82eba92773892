"""Transactions at remote brokers: ending them, and registering producers for checks."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from millstream.model import properties as names
from millstream.model.clock import Clock
from millstream.model.commands import RecoverOrphanedTransaction
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import Resolution, SendReceipt
from millstream.protocol.record import decode_record
from millstream.protocol.remoting.bodies import HeartbeatData, ProducerData, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.message_requests import TransactionEnd, encode_end
from millstream.proxy.remote.connection_pool import BrokerConnectionPool
from millstream.proxy.remote.routes import KnownRoute, RouteCache
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["HEARTBEAT_INTERVAL_S", "MAX_PLACES", "Heartbeats", "RemoteTransactions"]


_log = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_S: Final = 30.0
"""Seconds between two heartbeats without news; brokers forget clients that are silent for 120 s."""

_GROUPS_AT_ONCE: Final = 100
"""Groups of one heartbeat; brokers take no more."""


@dataclass(slots=True)
class _SentHeartbeat:
    connection: RemotingConnection
    groups: set[str]
    at_s: float


class Heartbeats:
    """`beat` is called every few seconds.

    `producers` gives the topics that have producers here, `groups` the groups of producers that have some.
    """

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache, clock: Clock) -> None:
        self._lanes = lanes
        self._routes = routes
        self._clock = clock
        self._sent_heartbeats: dict[str, _SentHeartbeat] = {}
        self.client_id = f"proxy@{socket.gethostname()}@{os.getpid()}@{uuid4().hex[:8]}"
        self.producers: Callable[[], Iterable[str]] = tuple
        self.groups: Callable[[], Iterable[str]] = tuple

    async def beat(self) -> None:
        """Say what is new to each broker that holds such a topic, and all of it every `HEARTBEAT_INTERVAL_S`."""
        wanted: dict[str, set[str]] = {}
        for topic in list(self.producers()):
            try:
                known = await self._routes.get(topic)
            except MillstreamError:
                continue
            for address in known.addresses.values():
                wanted.setdefault(address, set()).add(topic)
        everywhere = set(self.groups())
        if everywhere:
            for _, address in await self._routes.masters():
                wanted.setdefault(address, set()).update(everywhere)
        for address, groups in wanted.items():
            try:
                await self._tell(address, groups)
            except MillstreamError as error:
                _log.info("%s does not hear of the producers here: %s", address, error)
        for address in self._sent_heartbeats.keys() - wanted.keys():
            del self._sent_heartbeats[address]

    async def _tell(self, address: str, groups: set[str]) -> None:
        now_s = self._clock.monotonic_s()
        connection = await self._lanes.connection(address)
        sent = self._sent_heartbeats.get(address)
        if sent is None or sent.connection is not connection or now_s - sent.at_s >= HEARTBEAT_INTERVAL_S:
            sent = _SentHeartbeat(connection, set(), now_s)
        new = sorted(groups - sent.groups)
        for start in range(0, len(new), _GROUPS_AT_ONCE):
            producers = [ProducerData(group) for group in new[start : start + _GROUPS_AT_ONCE]]
            body = encode_body(HeartbeatData(self.client_id, producers))
            await self._lanes.demand(address, RemotingCommand(RequestCode.HEART_BEAT, body=body))
        for group in sent.groups - groups:
            ext = {"clientID": self.client_id, "producerGroup": group}
            await self._lanes.demand(address, RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext))
        sent.groups = set(groups)
        self._sent_heartbeats[address] = sent


MAX_PLACES: Final = 100_000
"""Transactions whose broker is remembered; for others all brokers of the topic are asked."""

Answered = list[tuple[str, RemotingCommand | MillstreamError]]
AskAll = Callable[[Iterable[str], Callable[[], RemotingCommand]], Awaitable[Answered]]
"""Asks several brokers: what each answers, or why it does not."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a half message lies, and the producer group that it is of. `offsets` are in its queue and in the log."""

    broker_name: str
    group: str
    offsets: tuple[int, int]


class RemoteTransactions:
    """The transactions of one proxy's clients. Each of `watchers` may pass a question on, and says whether it did."""

    def __init__(self, ask_all: AskAll) -> None:
        self._ask_all = ask_all
        self._places: dict[str, _Place] = {}
        self.watchers: list[Callable[[RecoverOrphanedTransaction], bool]] = []

    def note_sent(self, messages: Sequence[OutgoingMessage], receipts: Sequence[SendReceipt]) -> None:
        """Messages were stored, of which some may wait for the end of their transactions."""
        for message, receipt in zip(messages, receipts, strict=True):
            if message.properties.get(names.TRANSACTION) == "true":
                if len(self._places) >= MAX_PLACES:
                    del self._places[next(iter(self._places))]
                group = message.properties.get(names.PRODUCER_GROUP, message.topic)
                offsets = receipt.queue_offset, receipt.log_offset
                self._places[receipt.message_id] = _Place(receipt.broker_name, group, offsets)

    async def end(self, known: KnownRoute, topic: str, transaction_id: str, resolution: Resolution) -> None:
        """End a transaction at the broker that holds it. TRANSACTION_NOT_FOUND, TRANSACTION_ENDED.

        Where that is not known, all brokers of the topic are asked; one that does not answer may be the one.
        """
        place = self._places.get(transaction_id)
        address = None if place is None else known.addresses.get(place.broker_name)
        if place is None or address is None:
            addresses = [*known.addresses.values()]
            code = RequestCode.END_TRANSACTION_BY_ID
            ext = {"topic": topic, "transactionId": transaction_id, "resolution": resolution.value}
        else:
            addresses, code = [address], RequestCode.END_TRANSACTION
            ext = encode_end(
                TransactionEnd(resolution, place.group, *place.offsets, topic), transaction_id, place.broker_name
            )
        answers = await self._ask_all(addresses, lambda: RemotingCommand(code, dict(ext)))
        errors = [answer for _, answer in answers if isinstance(answer, MillstreamError)]
        if len(errors) < len(answers):
            if resolution is not Resolution.UNKNOWN:
                self._places.pop(transaction_id, None)
            return
        raise next((error for error in errors if error.name != "TRANSACTION_NOT_FOUND"), errors[0])

    def check(self, command: RemotingCommand) -> RemotingCommand | None:
        """A broker asks about a transaction. Nobody answers that: its producer ends it."""
        try:
            message = decode_record(command.body)
        except MillstreamError as error:
            _log.warning("A question about a transaction cannot be read: %s", error)
            return None
        transaction_id = command.ext.get("transactionId") or message.message_id
        question = RecoverOrphanedTransaction(message, transaction_id)
        if not any(watcher(question) for watcher in self.watchers):
            _log.info("No producer of %s is here to be asked about a transaction.", message.topic)
        return None
