"""The MQTT port of a proxy."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, cast

from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import MillstreamError, Refused
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.packets import Packet
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.connection import MqttConnection
from millstream.proxy.mqtt.exactly_once import ExactlyOnce
from millstream.proxy.mqtt.handlers import PacketHandlers
from millstream.proxy.mqtt.opening import ConnectHandler
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.sessions import SessionTable
from millstream.proxy.mqtt.shares import ShareTable
from millstream.proxy.mqtt.subscribing import SubscribeHandler
from millstream.proxy.mqtt.system_topics import SystemTopics
from millstream.proxy.mqtt.topic_rules import TopicRule, TopicRules
from millstream.proxy.mqtt.wills import WillPublisher
from millstream.proxy.processor import Processor
from millstream.security.guard import Guard
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.security.web_origins import WebOrigins
from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import add_port
from millstream.telemetry.processes import descriptor_limit
from millstream.transport.connection_memory import SWEEP_INTERVAL_S, ConnectionMemory
from millstream.transport.descriptor_budget import DescriptorBudget
from millstream.transport.grpc.deadlines import DeadlineTable
from millstream.transport.listening import listen_refused
from millstream.transport.strangers import StrangerAct, StrangerLog
from millstream.transport.tls_sniffer import HANDSHAKE_LIMIT_S, TlsSniffer

__all__ = ["CONNECT_LIMIT_S", "HOUSEKEEPING_S", "MAX_CONNECTIONS", "MqttServer"]

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 100_000
"""Connections of one port at most, and no more than there are descriptors for; the next one is closed at once."""

CONNECT_LIMIT_S: Final = 10.0
"""Seconds in which a client has to begin, and to have sent its CONNECT."""

HOUSEKEEPING_S: Final = 1.0
"""Seconds between two looks for sessions that are over, deliveries to renew and changed policies."""

_LAST_TURNS: Final = 10
"""Turns of the event loop in which the end of every connection is told; TLS needs three."""


class MqttServer:
    """Serves clients of MQTT 3.1.1 and 5.0 on `host`:`port` (0 takes a free one). The processor is started and closed
    by its owner.

    `guard` is the access control, `tls` what is shown to TLS clients and whether others are let in.
    `memory`, `descriptors` and `strangers` are for servers that share them with others of the process. `rules` say
    which topics hold the messages. `http_origins` are the origins whose pages may open WebSockets; StartRefused with
    ILLEGAL_SETTING.
    """

    def __init__(
        self,
        processor: Processor,
        backend: BrokerBackend,
        host: str,
        port: int,
        *,
        guard: Guard | None = None,
        tls: tuple[ServerIdentity, TlsMode] | None = None,
        memory: ConnectionMemory | None = None,
        descriptors: DescriptorBudget | None = None,
        strangers: StrangerLog | None = None,
        clock: Clock | None = None,
        rules: Sequence[TopicRule] = (),
        http_origins: Sequence[str] = (),
    ) -> None:
        self.clock = clock or SystemClock()
        self.memory = memory or ConnectionMemory()
        self.strangers = strangers or StrangerLog(self.clock)
        self.now_ms = self.clock.now_ms()
        """The time of this turn, about."""
        self._host = host
        self._port = port
        self._tls = tls
        self._origins = WebOrigins(http_origins)
        self._descriptors = descriptors or DescriptorBudget.of_limit(descriptor_limit())
        self._doorway: TlsSniffer | None = None
        self._connections: set[MqttConnection] = set()
        self._outgoing: list[MqttConnection] = []
        self._silence = DeadlineTable()
        self._guard = guard
        self._have_rules_changed = False
        self._looking_after: asyncio.Task[None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self.services = services = MqttServices(processor, backend, self.clock, TopicRules(rules), guard)
        services.subscriptions.on_delivered = self.flush
        self._exactly_once = ExactlyOnce(services)
        self._wills = WillPublisher(services)
        self._shares = ShareTable(services)
        self.sessions = SessionTable(services, self._shares, self._wills)
        self._system_topics = SystemTopics(services)
        self._handlers = PacketHandlers(
            services,
            ConnectHandler(services, self.sessions, self.watch_silence),
            SubscribeHandler(services, self.sessions, self._shares, self._system_topics),
            self._exactly_once,
        )

        self.take: Callable[[MqttConnection, Packet], Awaitable[None] | None] = self._handlers.take
        """Does what a packet of a client says; see `PacketHandlers.take`."""

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    @property
    def port(self) -> int:
        """The bound port; 0 while it does not listen."""
        return 0 if self._doorway is None else self._doorway.port

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of this port."""
        add_port(page, "mqtt", self.connections, self.services.traffic)

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """Listen, on sockets that do so already if there are some; the bound port.

        StartRefused with PORT_IN_USE or ADDRESS_NOT_LOCAL where that fails.
        """
        self._doorway = TlsSniffer(
            self._enter, self._descriptors, self.strangers, admits=self._has_room, first_byte_limit_s=CONNECT_LIMIT_S
        )
        try:
            port = await self._doorway.start(self._host, self._port, listening=listening)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None
        await self.services.start()
        await self.sessions.start()
        self._looking_after = asyncio.create_task(self._look_after_forever(), name="mqtt-housekeeping")
        if self._guard is not None:
            self._guard.book.on_change.append(self._note_rules)
        self._repeat_tick()
        return port

    async def close(self) -> None:
        """Take no more packets, and end every connection with SERVER_SHUTTING_DOWN."""
        if self._doorway is None:
            return
        self._doorway.close()
        self._doorway = None
        if self._tick is not None:
            self._tick.cancel()
        if self._looking_after is not None:
            self._looking_after.cancel()
            await asyncio.gather(self._looking_after, return_exceptions=True)
        if self._guard is not None:
            self._guard.book.on_change.remove(self._note_rules)
        self.sessions.stop_parking()
        for connection in list(self._connections):
            connection.refuse(ReasonCode.SERVER_SHUTTING_DOWN, "The server stops.")
        for _ in range(_LAST_TURNS):
            if not self._connections:
                break
            await asyncio.sleep(0)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        await self._exactly_once.close()
        # Last of all: what the clients left, their wills among it.
        await self.sessions.settle()
        self._wills.close()
        await self.services.settle()
        await self.sessions.close()
        await self.services.close()

    # For the connections

    def add(self, connection: MqttConnection) -> None:
        """A connection says that it is there."""
        self._descriptors.note()
        self._connections.add(connection)
        if not self._has_room(own=1):
            connection.abort()
            return
        self._silence.add(connection, connection.began_s + CONNECT_LIMIT_S, connection.began_s)

    def remove(self, connection: MqttConnection) -> None:
        """A connection says that it is gone."""
        self._descriptors.free()
        self._connections.discard(connection)
        self._silence.remove(connection)
        self.sessions.leave(connection)

    def refuse_packet(self, connection: MqttConnection, error: PacketRefused) -> None:
        """End a connection for what came over it; see `PacketHandlers.refuse_packet`."""
        self._handlers.refuse_packet(connection, error)

    def refuse_page(self, fields: Mapping[str, str]) -> MillstreamError | None:
        """Why the page of a browser that opens a WebSocket with these header fields may not; the log has it too."""
        try:
            self._origins.admit(fields)
        except Refused as error:
            self.strangers.say(_log, StrangerAct.REFUSED, f"Refusing a WebSocket: {error.message}")
            return error
        return None

    def watch_silence(self, connection: MqttConnection) -> None:
        """The client was let in: from now on its keep alive counts."""
        self._silence.remove(connection)
        self._silence.add(connection, connection.last_read_s + connection.keep_alive_s, connection.last_read_s)

    def note_outgoing(self, connection: MqttConnection) -> None:
        """The connection has something to write at the end of this turn."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing.append(connection)

    def flush(self) -> None:
        """Write what the connections have."""
        outgoing, self._outgoing = self._outgoing, []
        for connection in outgoing:
            connection.flush()

    # inside

    async def _enter(self, connection: socket.socket, is_tls: bool) -> None:
        """Take a connection that came through the doorway. OSError where it cannot be taken."""
        identity, mode = self._tls or (None, TlsMode.PERMISSIVE)
        if mode is TlsMode.REQUIRED and not is_tls:
            raise ConnectionAbortedError("plaintext where TLS is required")
        if is_tls and identity is None:
            raise ConnectionAbortedError("TLS where there is none")
        context = identity.context if identity is not None and is_tls else None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: MqttConnection(self),
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_LIMIT_S if context is not None else None,
        )

    def _has_room(self, own: int = 0) -> bool:
        """Whether one more connection may come; `own` counts the one that asks."""
        if len(self._connections) - own >= MAX_CONNECTIONS:
            words = f"Refusing a connection to {self._host}:{self._port}: {MAX_CONNECTIONS} are open."
            self.strangers.say(_log, StrangerAct.REFUSED, words)
            return False
        return True

    def close_silent(self) -> None:
        """Close the connections whose clients were silent for too long."""
        now_s = self.clock.monotonic_s()
        for entry in self._silence.take_due(now_s):
            connection = cast("MqttConnection", entry)
            if connection.session is None:
                connection.refuse(ReasonCode.KEEP_ALIVE_TIMEOUT, f"No CONNECT came in {CONNECT_LIMIT_S:g} s.")
            elif now_s - connection.last_read_s >= connection.keep_alive_s:
                words = f"The client was silent for {now_s - connection.last_read_s:.0f} s."
                connection.refuse(ReasonCode.KEEP_ALIVE_TIMEOUT, words)
            else:
                self.watch_silence(connection)

    def _repeat_tick(self) -> None:
        self.now_ms = self.clock.now_ms()
        self.close_silent()
        self.sessions.end_parking()
        self.memory.sweep(self.clock.monotonic_s())
        self._tick = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._repeat_tick)

    def _note_rules(self) -> None:
        self._have_rules_changed = True

    async def _look_after_forever(self) -> None:
        await self.sessions.store.ready()
        while True:
            try:
                await self._look_after()
            except MillstreamError as error:
                _log.info("the sessions of MQTT clients are looked after later: %s", error)
            except Exception:  # noqa: BLE001 - a task of the port's whole life must outlive one bad turn
                _log.exception("a turn of looking after MQTT sessions failed; the next one follows")
            await asyncio.sleep(HOUSEKEEPING_S)

    async def _look_after(self) -> None:
        """What has to be done from time to time."""
        if self._have_rules_changed:
            self._have_rules_changed = False
            await self.sessions.check_access()
        self._system_topics.tell()
        await self.sessions.wake_behind_gaps()
        await self.sessions.renew()
        await self._shares.refresh()
        self._shares.look()
        await self.sessions.unattended.look_after()
