"""One client's connection: decodes packets, calls handlers, and writes all responses of a turn at once.

PUBLISH and acknowledgements are handled at once. CONNECT, SUBSCRIBE and UNSUBSCRIBE may have to wait for the brokers;
what comes behind them waits here, so that packets take effect in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, cast

from millstream.model.errors import ConnectionFailed, MillstreamError
from millstream.model.message import Address
from millstream.protocol.mqtt.decoding import decode_packet
from millstream.protocol.mqtt.encoding import encode_packet
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import PacketType, ProtocolVersion
from millstream.protocol.mqtt.packets import Disconnect, Packet
from millstream.protocol.mqtt.properties import NO_PROPERTIES, Properties, PropertyId
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.protocol.mqtt.topic_aliases import NO_ALIASES, IncomingAliases
from millstream.protocol.mqtt.websocket import WebSocketStream, begins_websocket
from millstream.protocol.mqtt.windows import IncomingWindow
from millstream.proxy.mqtt.access import PendingAuthentication
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.services import MqttServices
from millstream.proxy.mqtt.session import MqttSession
from millstream.transport.connection_memory import ConnectionMemory, HalfFrame
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = [
    "MAX_CONNECT_BYTES",
    "MAX_PACKET_BYTES",
    "MAX_RECEIVE",
    "MAX_TOPIC_ALIASES",
    "WRITE_HIGH_WATER_BYTES",
    "AnswerPlace",
    "ConnectionPort",
    "MqttConnection",
]

_log = logging.getLogger(__name__)

MAX_CONNECT_BYTES: Final = 64 * 1024
"""Bytes of CONNECT at most, and of any packet before the client was let in."""

MAX_PACKET_BYTES: Final = 4 * 1024 * 1024 + 128 * 1024
"""Bytes of a packet at most: the largest body that brokers take, and room for its topic and properties."""

MAX_RECEIVE: Final = 1000
"""Messages of QoS 1 and 2 that a client may send before they are acknowledged."""

MAX_TOPIC_ALIASES: Final = 32
"""Topic aliases of one connection at most, in each direction."""

WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
"""Bytes that a client has not read, over which it gets no messages of QoS 0, and its packets are not read."""

_MAX_REASON_CHARACTERS: Final = 200
_PUBACK: Final = PacketType.PUBACK << 4
_SUBSCRIBE: Final = PacketType.SUBSCRIBE << 4


class AnswerPlace:
    """A place in the order of answers; `data` is blank until it is there."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = b""


class ConnectionPort(Protocol):
    """The port of a connection, as `MqttServer` is one; see there."""

    services: MqttServices
    memory: ConnectionMemory
    strangers: StrangerLog
    now_ms: int

    @property
    def take(self) -> Callable[[MqttConnection, Packet], Awaitable[None] | None]: ...

    def refuse_packet(self, connection: MqttConnection, error: PacketRefused) -> None: ...

    def refuse_page(self, fields: Mapping[str, str]) -> MillstreamError | None: ...

    def note_outgoing(self, connection: MqttConnection) -> None: ...

    def add(self, connection: MqttConnection) -> None: ...

    def remove(self, connection: MqttConnection) -> None: ...


class MqttConnection(asyncio.Protocol):
    """`session` is None until the client is let in. `version` is what its CONNECT says."""

    __slots__ = (
        "_answers",
        "_background",
        "_backlog",
        "_decoder",
        "_early",
        "_frame",
        "_is_half",
        "_is_unsent",
        "_outgoing",
        "_reads",
        "_server",
        "_task",
        "_transport",
        "_unstored",
        "_waiters",
        "_websocket",
        "authentication",
        "began_s",
        "bucket",
        "has_disconnected",
        "incoming",
        "incoming_aliases",
        "keep_alive_s",
        "last_read_s",
        "max_packet_bytes",
        "outgoing_aliases",
        "peer",
        "session",
        "tells_reasons",
        "version",
        "will_is_due",
    )

    def __init__(self, server: ConnectionPort) -> None:
        self.peer = Address("0.0.0.0", 0)
        self.version = ProtocolVersion.V5
        self.session: MqttSession | None = None
        self.incoming = IncomingWindow(MAX_RECEIVE)
        self.incoming_aliases = IncomingAliases(MAX_TOPIC_ALIASES)
        self.outgoing_aliases = NO_ALIASES
        self.max_packet_bytes: int | None = None
        """Bytes of a packet that the client takes; None for any."""
        self.tells_reasons = True
        """Whether the client wants to know why in words, and user properties [MQTT-3.1.2-29]."""
        self.keep_alive_s = 0.0
        self.began_s = self.last_read_s = server.services.clock.monotonic_s()
        self.will_is_due = True
        """Whether its will is published when the connection ends."""
        self.has_disconnected = False
        """Whether DISCONNECT came."""
        self.authentication: PendingAuthentication | None = None
        """What waits for the client's next AUTH, before it is let in."""
        self.bucket = 0
        """Its place in the table of those that have to say something."""
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._decoder = PacketFrames(MAX_CONNECT_BYTES)
        self._backlog: deque[tuple[int, bytes]] | None = None
        self._early = b""
        """What came behind CONNECT before the client was let in: its packets may be large only from then on."""
        self._outgoing: list[bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._frame: HalfFrame | None = None
        # None as long as there are none: most connections are idle, and a deque alone takes 760 bytes.
        self._answers: deque[AnswerPlace] | None = None
        self._background: set[asyncio.Task[None]] | None = None
        self._unstored = 0
        self._waiters: list[asyncio.Future[None]] | None = None
        self._websocket: WebSocketStream | None = None
        self._is_half = False
        self._is_unsent = False
        self._reads = True

    @property
    def is_open(self) -> bool:
        """Whether something sent now can still reach the client."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_let_in(self) -> bool:
        """Whether CONNACK was sent: nothing goes before that [MQTT-3.2.0-1]."""
        return self.session is not None

    @property
    def was_cut(self) -> bool:
        """Whether it ends, or ended, without a word of the client, and with none of its packets half done."""
        return not self.has_disconnected and self._task is None

    @property
    def is_stuffed(self) -> bool:
        """Whether the client leaves so much unread that it gets no messages of QoS 0."""
        return self._is_unsent

    # What others send to the client

    def send(self, packet: Packet) -> None:
        """Send a packet with the answers of this turn."""
        self.send_bytes(encode_packet(packet, self.version))

    def send_bytes(self, data: bytes) -> None:
        """The same for one that is encoded."""
        if self._outgoing is None:
            self._outgoing = []
            self._server.note_outgoing(self)
        self._outgoing.append(data)

    def send_message(
        self,
        message: ApplicationMessage,
        qos: int,
        packet_id: int,
        *,
        retain: bool,
        dup: bool = False,
        subscription_ids: tuple[int, ...] = (),
    ) -> bool:
        """Send a message; False, and nothing is sent, where it is larger than the client takes [MQTT-3.1.2-24]."""
        data = message.encode(
            self.version,
            qos,
            packet_id,
            self._server.now_ms,
            retain=retain,
            dup=dup,
            subscription_ids=subscription_ids,
            aliases=self.outgoing_aliases,
        )
        traffic = self._server.services.traffic
        if self.max_packet_bytes is not None and len(data) > self.max_packet_bytes:
            traffic.dropped += 1
            return False
        traffic.messages_out += 1
        self.send_bytes(data)
        return True

    def expect_answer(self) -> AnswerPlace:
        """A place for the answer to a message: answers leave in the order of their messages [MQTT-4.6.0-2]."""
        answer = AnswerPlace()
        if self._answers is None:
            self._answers = deque()
        self._answers.append(answer)
        return answer

    def fill(self, answer: AnswerPlace, data: bytes) -> None:
        """The answer is there."""
        answer.data = data
        answers = self._answers
        while answers and answers[0].data:
            self.send_bytes(answers.popleft().data)

    def note_publish(self) -> None:
        """A message of the client is on its way into the store."""
        self._unstored += 1

    def note_stored(self) -> None:
        """It is there, or was refused."""
        self._unstored -= 1
        if not self._unstored:
            self._wake()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the client's packets, for as long as the connection is there."""
        task = asyncio.create_task(self._run(work), name="mqtt-background")
        background = self._background
        if background is None:
            background = self._background = set()
        background.add(task)
        task.add_done_callback(self._note_done)
        # Of a task that is cancelled before it has begun nobody else does so.
        task.add_done_callback(lambda _: work.close())

    def _note_done(self, task: asyncio.Task[None]) -> None:
        if self._background is not None:
            self._background.discard(task)
            if not self._background:
                self._background = None

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except MillstreamError as error:
            self.refuse(ReasonCode.UNSPECIFIED_ERROR, str(error))
        except Exception:  # noqa: BLE001 - the connection's edge: it ends, and the server goes on
            _log.exception("what an MQTT client waits for failed")
            self.refuse(ReasonCode.UNSPECIFIED_ERROR, "The server failed; see its log.")

    async def settle(self) -> None:
        """Return when all is stored that the client published, or the connection is gone."""
        while self._unstored and self.is_open:
            await self._wait()

    async def wait_for_room(self) -> None:
        """Return when the client may have read or acknowledged something, or the connection is gone."""
        if self.is_open:
            await self._wait()

    def wake(self) -> None:
        """What `wait_for_room` waits for has come."""
        if self._waiters:
            self._wake()

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def flush(self) -> None:
        """Write what was sent."""
        outgoing, self._outgoing = self._outgoing, None
        if not outgoing:
            return
        data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
        if self._transport is not None and not self._transport.is_closing():
            self._server.services.statistics.bytes_sent += len(data)
            self._transport.write(data if self._websocket is None else self._websocket.encode(data))

    def refuse(self, reason: ReasonCode, words: str, *, level: int = logging.INFO) -> None:
        """End the connection and say why [MQTT-4.13.1-1]; before the client was let in, without a word. The log has it
        at that level."""
        if not self.is_open:
            return
        line = f"Closing the connection from {self.peer.host}:{self.peer.port}: {words}"
        self._server.strangers.say(_log, StrangerAct.BAD_REQUEST, line, level=level)
        if self.session is not None and self.version is ProtocolVersion.V5:
            self.send(Disconnect(reason, self.reason_properties(words)))
        self.close()

    def reason_properties(self, words: str) -> Properties:
        """The property that says why in words, where the client wants it and its packets may have room for it."""
        small = self.max_packet_bytes is not None and self.max_packet_bytes < 4 * _MAX_REASON_CHARACTERS
        if not self.tells_reasons or small or not words:
            return NO_PROPERTIES
        return Properties({PropertyId.REASON_STRING: words[:_MAX_REASON_CHARACTERS]})

    def close(self) -> None:
        """Close after what was sent."""
        self.flush()
        if self._transport is None or self._transport.is_closing():
            return
        if self._websocket is not None:
            self._transport.write(self._websocket.close())
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def let_in(self, session: MqttSession) -> None:
        """The client was let in: its packets may be large from now on."""
        self.session = session
        self._decoder.max_bytes = MAX_PACKET_BYTES

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are none of asyncio's classes.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        name = transport.get_extra_info("peername")
        if name:
            self.peer = Address(str(name[0]).partition("%")[0], int(name[1]))
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        self.last_read_s = self._server.services.clock.monotonic_s()
        self._server.services.statistics.bytes_received += len(data)
        if self._websocket is not None or (self.session is None and begins_websocket(data[0]) and self._is_fresh):
            data = self._unwrap(data)
        if self._is_being_let_in:
            self._early += data
        else:
            self._take_in(data)
        if self._websocket is not None and self._websocket.is_closed:
            # What came before the end of the stream was handled.
            self.close()
        self._throttle()

    def _take_in(self, data: bytes) -> None:
        """Handle the packets that are whole now, or put them behind the one that waits."""
        frames = self._decoder.feed(data)
        if self._backlog is not None:
            self._backlog.extend(frames)
        else:
            self._handle(frames)
        if self._decoder.failure is not None and self._backlog is None:
            self._refuse_packet(self._decoder.failure)
        elif self._decoder.held_bytes or self._is_half:
            self._note_half(begins=bool(frames))

    def pause_writing(self) -> None:
        self._is_unsent = True
        self._throttle()

    def resume_writing(self) -> None:
        self._is_unsent = False
        self._throttle()
        if self.session is not None:
            self.session.go_on()
        self.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        for task in (*(self._background or ()), *([] if self._task is None else [self._task])):
            task.cancel()
        self._end_half()
        self._decoder.forget()
        self._backlog, self._early = None, b""
        self._outgoing = None
        self._server.remove(self)
        self._transport = None
        self._wake()

    # inside

    @property
    def _is_fresh(self) -> bool:
        """Whether nothing came before."""
        return self._backlog is None and not self._decoder.held_bytes

    @property
    def _is_being_let_in(self) -> bool:
        """Whether its CONNECT waits, or a proof of who it is."""
        return self._backlog is not None and self.session is None

    def _unwrap(self, data: bytes) -> bytes:
        """What a chunk of a WebSocket carries."""
        if self._websocket is None:
            self._websocket = WebSocketStream(self._server.refuse_page)
        websocket = self._websocket
        try:
            found = websocket.feed(data)
        except PacketRefused as error:
            self._refuse_packet(error)
            return b""
        if websocket.answers and self._transport is not None and self.is_open:
            self._transport.write(websocket.answers)
            websocket.answers = b""
        return found

    def _handle(self, frames: list[tuple[int, bytes]]) -> None:
        """Handle packets until one has to wait; the rest goes to the backlog."""
        take, transport = self._server.take, self._transport
        has_acknowledged = False
        for number, (first, body) in enumerate(frames):
            try:
                waiting = take(self, decode_packet(first, body, self.version))
            except PacketRefused as error:
                self._refuse_packet(error)
                return
            if transport is None or transport.is_closing():
                return
            if waiting is not None:
                self._backlog = deque(frames[number + 1 :])
                self._task = asyncio.create_task(self._finish(waiting), name="mqtt-packet")
                break
            if _PUBACK <= first < _SUBSCRIBE:
                has_acknowledged = True
        if has_acknowledged and self.session is not None:
            # Once for all of them.
            self.session.go_on()

    async def _finish(self, waiting: object) -> None:
        """Wait for one packet's handler, then handle what came meanwhile."""
        try:
            await cast("asyncio.Future[None]", waiting)
        except PacketRefused as error:
            self._refuse_packet(error)
        except ConnectionFailed as error:
            self.refuse(ReasonCode.SERVER_UNAVAILABLE, str(error))
        except Exception:  # noqa: BLE001 - the connection's edge: it ends, and the server goes on
            _log.exception("a packet of an MQTT client could not be handled")
            self.refuse(ReasonCode.UNSPECIFIED_ERROR, "The server failed; see its log.")
        self._task = None
        backlog, self._backlog = self._backlog, None
        if backlog and self.is_open:
            self._handle(list(backlog))
        if self._early and self.is_open and not self._is_being_let_in:
            early, self._early = self._early, b""
            self._take_in(early)
        if self._decoder.failure is not None and self._backlog is None:
            self._refuse_packet(self._decoder.failure)
        self._throttle()

    def _refuse_packet(self, error: PacketRefused) -> None:
        self._server.refuse_packet(self, error)

    def _note_half(self, *, begins: bool) -> None:
        """Tell the process what lies here of a packet."""
        held_bytes = self._decoder.held_bytes
        if not held_bytes:
            self._end_half()
            return
        if self._frame is None:
            self._frame = HalfFrame(self._throttle, self._give_up)
        self._is_half = True
        self._server.memory.frames.note_bytes(
            self._frame, held_bytes, self._decoder.missing_bytes, self.last_read_s, begins=begins
        )

    def _end_half(self) -> None:
        if self._frame is not None and self._is_half:
            self._is_half = False
            self._server.memory.frames.end(self._frame, self._server.services.clock.monotonic_s())

    def _give_up(self, error: ConnectionFailed) -> None:
        self.refuse(ReasonCode.SERVER_BUSY, str(error))
        self.abort()

    def _throttle(self) -> None:
        """Read only while the client reads, none of its packets waits for another, and there is memory for the next.

        A packet that has to wait is mostly the last that came: reading stops when there is one behind it.
        """
        waits = self._frame is not None and self._frame.waits
        wanted = not (self._is_unsent or self._backlog or self._early or waits)
        if wanted is self._reads or not self.is_open:
            return
        assert self._transport is not None
        self._reads = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
