"""One AMQP connection above its bytes: its user, virtual host and channels."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.outgoing import MessageIds
from millstream.model.catalogue import CATALOGUE
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.protocol.amqp.connection import (
    AmqpCore,
    AmqpEvent,
    ChannelContent,
    ChannelEnd,
    ChannelMethod,
    ConnectionEnd,
    HostRequest,
    LoginRequest,
    SecretUpdate,
)
from millstream.protocol.amqp.content_intake import Publication
from millstream.protocol.amqp.method_codec import AmqpMethod
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ConnectionFailure, ReplyCode
from millstream.protocol.amqp.session_methods import ChannelOpen
from millstream.proxy.amqp.access import AmqpAccess, Login, read_login
from millstream.proxy.amqp.channel import AmqpChannel
from millstream.proxy.amqp.declarations import AmqpQueue, DeclaredBinding
from millstream.proxy.amqp.direct_replies import DirectReplies
from millstream.proxy.amqp.names import topic_of_exchange
from millstream.proxy.amqp.publisher import AmqpPublisher
from millstream.proxy.amqp.queue_reader import AmqpConsumer, AmqpDelivery, AmqpQueueReader, QueueAccess
from millstream.proxy.amqp.queues import ProxyQueues
from millstream.proxy.amqp.refusals import channel_failure
from millstream.proxy.amqp.stored_content import view_content
from millstream.proxy.amqp.topology import Topology
from millstream.proxy.amqp.virtual_host import VirtualHost
from millstream.proxy.throttle import Throttle
from millstream.security.policy import Action
from millstream.telemetry.port_traffic import PortTraffic

__all__ = ["MAX_UNSENT_BYTES", "AmqpSession", "AmqpShared"]

_log = logging.getLogger(__name__)

MAX_UNSENT_BYTES: Final = 256 * 1024
"""Bytes of bodies that are sent to a client in one turn, about; then the others wait until it reads."""

_RANDOM_BYTES: Final = 16
_UNAUTHORIZED: Final = f"MS-{CATALOGUE['UNAUTHORIZED'].number}"


@dataclass(slots=True)
class AmqpShared:
    """What all connections of a proxy share."""

    topology: Topology
    queues: ProxyQueues
    publisher: AmqpPublisher
    replies: DirectReplies
    ids: MessageIds
    access: AmqpAccess
    clock: Clock
    traffic: PortTraffic
    throttle: Throttle


class AmqpSession:
    """From the first byte of a connection to `end`. `name` tells connections of all proxies apart.

    `flush_soon` has what is outgoing written at the end of the turn.
    """

    def __init__(
        self, shared: AmqpShared, core: AmqpCore, name: str, peer: Address, flush_soon: Callable[[], None]
    ) -> None:
        self.name = name
        self.peer = peer
        self.user = ""
        self.core = core
        self.flush_soon = flush_soon
        self.is_unread = False
        """Whether the client does not read what is sent."""
        self.unsent_bytes = 0
        """Bytes of bodies that were sent in this turn and are not handed to the connection."""
        self.channels: dict[int, AmqpChannel] = {}
        self.topology = shared.topology
        self.publisher = shared.publisher
        self.replies = shared.replies
        self.ids = shared.ids
        self.clock = shared.clock
        self.traffic = shared.traffic
        self.throttle = shared.throttle
        self.client_name = name
        """The name that the client gives its connection; without one, that of the connection."""
        self._access = shared.access
        self._queues = shared.queues
        self._host: VirtualHost | None = None
        self._to_confirm: dict[AmqpChannel, None] = {}

    @property
    def host(self) -> VirtualHost:
        """The virtual host of an open connection."""
        assert self._host is not None
        return self._host

    @property
    def is_congested(self) -> bool:
        """Whether so much waits that the connection should not be read."""
        return any(channel.is_congested for channel in self.channels.values())

    def take(self, events: Sequence[AmqpEvent]) -> None:
        """Carry out what came in one chunk."""
        for event in events:
            try:
                self._take(event)
            except ConnectionFailure as failure:
                self.fail(failure)

    def _take(self, event: AmqpEvent) -> None:
        if isinstance(event, ChannelContent):
            self._take_work(event.channel, event.publication)
        elif isinstance(event, ChannelMethod):
            if isinstance(event.method, ChannelOpen):
                self.channels[event.channel] = AmqpChannel(self, event.channel)
            else:
                self._take_work(event.channel, event.method)
        elif isinstance(event, LoginRequest):
            self._log_in(event)
        elif isinstance(event, HostRequest):
            self._open_host(event.virtual_host)
        elif isinstance(event, SecretUpdate):
            self._update_secret(event)
        elif isinstance(event, ChannelEnd):
            self._drop(event.channel)
        elif isinstance(event, ConnectionEnd):
            self.end()

    def _take_work(self, number: int, work: object) -> None:
        channel = self.channels.get(number)
        if channel is None:
            return
        try:
            channel.take(work)  # type: ignore[arg-type]
        except (AmqpFailure, MillstreamError) as error:
            failure = channel_failure(error) if isinstance(error, MillstreamError) else error
            method_id = work.method_id if isinstance(work, AmqpMethod) else (60, 40)
            self.fail_channel(channel, failure, method_id)

    # opening

    def _log_in(self, request: LoginRequest) -> None:
        login = read_login(request.mechanism, request.response)
        if login is None or not self._access.admits(login, self.peer.host):
            self.traffic.refused += 1
            self.core.refuse_login(
                f"Login was refused using authentication mechanism {request.mechanism[:40]}: the user or the secret is "
                f"wrong, or the mechanism is neither PLAIN nor AMQPLAIN. [{_UNAUTHORIZED}]"
            )
            return
        self.user = login.user
        told = request.client_properties.get("connection_name")
        self.client_name = told if isinstance(told, str) and told else self.name
        self.core.accept_login()

    def _open_host(self, name: str) -> None:
        host = self.topology.hosts.get(name)
        if host is None:
            raise ConnectionFailure(ReplyCode.NOT_ALLOWED, f"vhost {name} not found")
        self._host = host
        self.core.accept_host()

    def _update_secret(self, event: SecretUpdate) -> None:
        login = Login(self.user, event.new_secret.decode(errors="replace"))
        if not self._access.admits(login, self.peer.host):
            raise ConnectionFailure(ReplyCode.ACCESS_REFUSED, "the new secret is not that of the user")
        self.core.accept_secret()

    def now_s(self) -> float:
        """The monotonic clock."""
        return self.clock.monotonic_s()

    # what channels say

    def send(self, channel: int, method: AmqpMethod) -> None:
        """Send a method."""
        self.core.send(channel, method)
        self.flush_soon()

    def send_content(self, channel: int, method: bytes, properties: bytes, body: bytes) -> None:
        """Send a method's payload with content."""
        self.core.send_content(channel, method, properties, body)
        self.unsent_bytes += len(body)
        self.flush_soon()

    @property
    def takes_more(self) -> bool:
        """Whether consumers may get messages now."""
        return not self.is_unread and self.unsent_bytes < MAX_UNSENT_BYTES

    def note_sent(self) -> bool:
        """What was sent is with the connection; whether it held consumers back, and the client reads."""
        was_full, self.unsent_bytes = self.unsent_bytes >= MAX_UNSENT_BYTES, 0
        return was_full and not self.is_unread

    def wake_readers(self) -> None:
        """The client reads again."""
        for channel in self.channels.values():
            channel.wake_readers()

    def can(self, capability: str) -> bool:
        """Whether the client knows an extension."""
        return self.core.can(capability)

    def confirm_soon(self, channel: AmqpChannel) -> None:
        """Tell the client of settled messages at the end of the turn."""
        self._to_confirm[channel] = None
        self.flush_soon()

    def send_confirms(self) -> None:
        """Put among what is outgoing what has been settled by now."""
        channels, self._to_confirm = self._to_confirm, {}
        for channel in channels:
            channel.send_confirms()

    def end_channel(self, channel: AmqpChannel) -> None:
        """The client closes a channel."""
        channel.send_confirms()
        self._drop(channel.number)
        self.core.end_channel(channel.number)
        self.flush_soon()

    def fail_channel(self, channel: AmqpChannel, failure: AmqpFailure, method_id: tuple[int, int]) -> None:
        """A method of a channel failed; with it the channel, or the connection."""
        self.traffic.refused += 1
        if not isinstance(failure, ChannelFailure):
            self.core.fail(ConnectionFailure(failure.code, failure.words), method_id)
            self.end()
        elif self.channels.get(channel.number) is channel:
            self._drop(channel.number)
            self.core.fail_channel(channel.number, failure, method_id)
        self.flush_soon()

    def fail(self, failure: ConnectionFailure) -> None:
        """End the connection."""
        self.core.fail(failure)
        self.end()
        self.flush_soon()

    def end(self) -> None:
        """The connection is over: what it held goes back, its exclusive queues go. A second time is no error."""
        for number in list(self.channels):
            self._drop(number)
        if self._host is not None:
            for queue in self._host.queues_of(self.name):
                self._queues.run(self._queues.delete(self._host, queue))

    def _drop(self, number: int) -> None:
        channel = self.channels.pop(number, None)
        if channel is not None:
            channel.end()

    # queues

    def access_of(self, name: str) -> QueueAccess:
        """What can be done with a queue."""
        return self._queues.access_of(self.host.name, name)

    def bounded_takers(self, publication: Publication) -> list[AmqpQueue]:
        """The queues with a limit of length that get a message. Raises AmqpFailure for properties that are none."""
        host = self.host
        view = view_content(publication.properties)
        key, headers, further = publication.routing_key, view.headers, view.further_keys
        taker = host.find_taker(publication.exchange, key, headers, further)
        if taker is None:
            return []
        names = host.route(taker, key, headers, further) & host.bounded.keys()
        return [host.bounded[name] for name in sorted(names)]

    async def has_room(self, queue: AmqpQueue, body_bytes: int) -> bool:
        """Whether a queue may have one message more."""
        with_bytes = queue.max_length_bytes is not None
        return (await self.access_of(queue.name).measure(with_bytes=with_bytes)).has_room(queue, body_bytes)

    async def enforce_length(self, queue: AmqpQueue) -> None:
        """Drop the oldest messages of a queue that has more, or more bytes of them, than it may have."""
        await self._queues.enforce_length(self.host, queue)

    def note_use(self, name: str) -> None:
        """The client does something with a queue."""
        self._queues.note_use(self.host.name, name)

    def consumers_of(self, name: str) -> int:
        """Consumers of a queue."""
        return self._queues.consumers_of(self.host.name, name)

    def add_consumer(self, name: str, consumer: AmqpConsumer) -> None:
        """Begin to serve a consumer."""
        self._queues.add_consumer(self.host.name, self.host.queue(name, self.name), consumer)

    def remove_consumer(self, consumer: AmqpConsumer) -> None:
        """Serve a consumer no more."""
        self._queues.remove_consumer(self.host, consumer)

    def reader_of(self, consumer: AmqpConsumer) -> AmqpQueueReader:
        """Who serves a consumer."""
        return self._queues.reader_of(consumer)

    def ack_soon(self, delivery: AmqpDelivery) -> None:
        """A delivery is consumed."""
        self._queues.ack_soon(delivery)

    def put_back(self, deliveries: Sequence[AmqpDelivery]) -> None:
        """Deliveries are to be delivered again."""
        if deliveries:
            self._queues.put_back(self.host, deliveries)

    def dead_letter(self, deliveries: Sequence[AmqpDelivery]) -> None:
        """Deliveries are rejected."""
        self._queues.dead_letter(self.host, deliveries, "rejected")

    # what the user may do

    def follow_rights(self) -> None:
        """End what the user may not do any more; to be called now and then."""
        if self._host is None or not self.core.is_open:
            return
        if self._access.is_gone(self.user):
            self.fail(ConnectionFailure(ReplyCode.ACCESS_REFUSED, f"the user '{self.user}' is gone or disabled"))
            return
        for channel in self.channels.values():
            for consumer in list(channel.consumers.values()):
                name = self.reader_of(consumer).access.name
                if not self._access.may_consume(self.user, self.host.name, name, self.peer.host):
                    self.remove_consumer(consumer)
                    channel.cancel_consumer(consumer)

    def check_publish(self, topic: str) -> None:
        """ACCESS_DENIED where the user may not publish there."""
        self._access.check_topic(self.user, topic, Action.PUB, self.peer.host)

    def check_exchange(self, name: str, *, passive: bool) -> None:
        """ACCESS_DENIED where the user may not declare the exchange, or see it."""
        topic = topic_of_exchange(self.host.name, name)
        self._access.check_topic(self.user, topic, Action.GET if passive else Action.CREATE, self.peer.host)

    def check_delete_exchange(self, name: str) -> None:
        """ACCESS_DENIED where the user may not delete the exchange."""
        self._access.check_topic(self.user, topic_of_exchange(self.host.name, name), Action.DELETE, self.peer.host)

    def check_queue(self, name: str, *, passive: bool) -> None:
        """ACCESS_DENIED where the user may not declare the queue, or see it."""
        action = Action.GET if passive else Action.CREATE
        self._access.check_queue(self.user, self.host.name, name, action, self.peer.host)

    def check_delete_queue(self, name: str) -> None:
        """ACCESS_DENIED where the user may not delete the queue."""
        self._access.check_queue(self.user, self.host.name, name, Action.DELETE, self.peer.host)

    def check_consume(self, name: str) -> None:
        """ACCESS_DENIED where the user may not consume the queue. NOT_FOUND, RESOURCE_LOCKED."""
        self.host.queue(name, self.name)
        self._access.check_queue(self.user, self.host.name, name, Action.SUB, self.peer.host)

    def check_bind(self, binding: DeclaredBinding) -> None:
        """ACCESS_DENIED where the user may not read the exchange."""
        topic = topic_of_exchange(self.host.name, binding.source)
        self._access.check_topic(self.user, topic, Action.SUB, self.peer.host)

    @staticmethod
    def random_name() -> str:
        """22 characters that nobody else has."""
        return base64.urlsafe_b64encode(os.urandom(_RANDOM_BYTES)).decode().rstrip("=")
