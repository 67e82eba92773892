"""One client that receives over a WebSocket: messages go out as there is room, and its commands settle them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec
import orjson

from millstream.model.errors import MillstreamError, Refused
from millstream.model.handles import ReceiptHandle
from millstream.model.moment import duration_ms
from millstream.model.operations import PoppedMessage
from millstream.protocol.websocket import CloseCode
from millstream.proxy.http.deliveries import encode_in_time, encode_messages
from millstream.proxy.http.in_flight import InFlight
from millstream.proxy.http.problems import RETRY_AFTER_S, status_of
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.settlement import DeliveryPlace, Settlement, check_handles, settle
from millstream.proxy.processor import MAX_RECEIVE_MESSAGES, ReceiveRequest
from millstream.proxy.throttle import Caller
from millstream.transport.websocket_connection import PIECE_BYTES, WebSocketConnection

__all__ = ["WebSocketSession", "admit"]

_log = logging.getLogger(__name__)

_PATIENT: Final = frozenset(("CLIENT_THROTTLED", "TOO_MANY_REQUESTS"))
"""Refusals of a receive after which the session tries again by itself."""

_AWAY: Final = frozenset((429, 503))
_COMMAND_COST_BYTES: Final = PIECE_BYTES
"""A command costs about as much time as taking that much of the smallest frames."""

_TIMES: Final = {"nack": "delay", "extend": "invisible"}
_OVER: Final = Refused("INVALID_RECEIPT_HANDLE", "").label
"""What settles a delivery as well: it is over."""


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    """What a client sends."""

    action: Literal["ack", "nack", "extend", "dead-letter"]
    handles: list[str]
    delay: str | None = None
    invisible: str | None = None

    def time_ms(self) -> int | None:
        """The time that belongs to the action. Raises HTTP_REQUEST for one that does not, or cannot be read."""
        given = {
            name: text for name, text in (("delay", self.delay), ("invisible", self.invisible)) if text is not None
        }
        named = _TIMES.get(self.action)
        for name, text in given.items():
            if name != named:
                raise Refused("HTTP_REQUEST", f"The action {self.action} has no {name}.")
            try:
                return duration_ms(text)
            except ValueError as error:
                raise Refused("HTTP_REQUEST", f"{name}: {str(error)[:200]}.") from None
        return None


_DECODER: Final = msgspec.json.Decoder(_Command)


def admit(service: HttpService, wish: ReceiveRequest, user: str) -> None:
    """Count a receive of the client; CLIENT_THROTTLED."""
    throttle = service.processor.throttle
    if throttle.has_rules:
        throttle.admit(Caller(wish.client_id, wish.group, user), 0, service.clock.monotonic_s())


class WebSocketSession:
    """Serves one open WebSocket, whose first receive was admitted, by `run`."""

    def __init__(
        self,
        service: HttpService,
        request: HttpRequest,
        socket: WebSocketConnection,
        wish: ReceiveRequest,
        max_in_flight: int,
    ) -> None:
        self._service = service
        self._processor = service.processor
        self._clock = service.clock
        self._request = request
        self._socket = socket
        self._wish = wish
        self._place = DeliveryPlace(wish.group, wish.topic)
        self._in_flight = InFlight(max_in_flight)
        self._settled = asyncio.Event()
        self._is_admitted = True

    async def run(self) -> None:
        """Serve until one side closes; what the client has not settled by then others get in a second."""
        giving = asyncio.create_task(self._give(), name="http-websocket")
        giving.add_done_callback(self._note_end)
        try:
            while (text := await self._socket.receive()) is not None:
                # At a broker of this process a command ends within its turn, and thousands may wait.
                await self._service.memory.input.turn(_COMMAND_COST_BYTES)
                await self._obey(text)
                await asyncio.sleep(0)
        except MillstreamError as error:
            self._close_for(error)
        except Exception as error:  # noqa: BLE001 - the edge of one WebSocket
            self._close_for_unforeseen(error)
        finally:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)
            left = self._in_flight.take_all(self._clock.monotonic_s())
            if left:
                self._processor.release(self._place.group, self._place.topic, left)

    # Messages for the client

    async def _give(self) -> None:
        while self._socket.is_open:
            room = self._in_flight.room(self._clock.monotonic_s())
            if room <= 0:
                await self._wait_for_room()
                continue
            try:
                # Without a name here: what is handed over must not last as long as the wait for more.
                await self._hand_over(await self._receive(min(room, self._most_at_once)))
            except MillstreamError as error:
                if error.name not in _PATIENT:
                    raise
                wait_s = RETRY_AFTER_S
            else:
                # A receive that is not to wait any more comes back at once.
                wait_s = 0
            # Behind the refusal: it knows the messages that could not be handed over.
            await asyncio.sleep(wait_s)

    @property
    def _most_at_once(self) -> int:
        """One message at a time while clients leave much unread: what is being made of messages is in no budget, and
        several times as large as they are."""
        return 1 if self._service.memory.answers.are_many else MAX_RECEIVE_MESSAGES

    async def _wait_for_room(self) -> None:
        left_s = self._in_flight.next_end_s() - self._clock.monotonic_s()
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(left_s, 0.0)):
                await self._settled.wait()

    async def _receive(self, room: int) -> list[PoppedMessage]:
        """Messages for the client, who may have lost its rights since it came."""
        self._service.gate.allow(self._request, "receive", self._place.wishes)
        if not self._is_admitted:
            admit(self._service, self._wish, self._request.user)
        self._is_admitted = False
        self._processor.note_alive(self._wish.client_id, self._request.user)
        self._wish.max_messages = room
        popped = await self._service.unwritten.receive(self._processor, self._wish)
        now_s = self._clock.monotonic_s()
        for one in popped:
            self._in_flight.add(one.handle, now_s)
        return popped

    async def _hand_over(self, popped: Sequence[PoppedMessage]) -> None:
        if not popped:
            return
        answers, share = self._processor.answers, None
        try:
            try:
                share = answers.begin(self._wish.client_id, popped)
                writing = self._socket.send(await encode_in_time(popped, answers, share, encode_messages))
            finally:
                self._service.unwritten.remove(popped)
            count = len(popped)
            # From here on the frame is what is there of them.
            popped = ()
            await writing
            self._service.traffic.messages_out += count
        except MillstreamError:
            # No frame was made of them.
            for one in popped:
                self._in_flight.remove(one.handle.encode())
            self._processor.give_back(self._wish, popped, uncounted=True)
            raise
        finally:
            if share is not None:
                answers.end(share)

    def _note_end(self, giving: asyncio.Task[None]) -> None:
        """Nothing is given any more: the WebSocket has no sense without."""
        if giving.cancelled():
            # By the session itself, or by those who need the memory of what the client does not read.
            self._socket.close(CloseCode.TRY_AGAIN_LATER, "The messages were not read, and others need the memory.")
            return
        error = giving.exception()
        if isinstance(error, MillstreamError):
            self._close_for(error)
        elif error is not None and not isinstance(error, ConnectionError):
            self._close_for_unforeseen(error)

    # Commands of the client

    async def _obey(self, text: str) -> None:
        began_s = self._clock.monotonic_s()
        try:
            command = _DECODER.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            words = f'A message is not of the form {{"action": "ack", "handles": ["..."]}}: {error}.'
            raise Refused("HTTP_REQUEST", words) from None
        check_handles(command.handles)
        time_ms = command.time_ms()
        self._service.gate.allow(self._request, command.action, self._place.wishes)
        settlement = await settle(self._processor, self._place, command.action, command.handles, time_ms)
        self._note_settled(settlement)
        failure = settlement.failure
        status = 200 if failure is None else int(status_of(failure))
        self._service.traffic.refused += failure is not None
        self._service.latency.note(command.action, status, self._clock.monotonic_s() - began_s)
        with suppress(ConnectionError):
            await self._socket.send(orjson.dumps({"action": command.action, "results": settlement.results}))

    def _note_settled(self, settlement: Settlement) -> None:
        now_s = self._clock.monotonic_s()
        for result in settlement.results:
            if "error" in result and result["code"] != _OVER:
                continue
            was_held = self._in_flight.remove(result["handle"])
            if was_held and "renewed" in result:
                self._in_flight.add(ReceiptHandle.decode(result["renewed"]), now_s)
        self._settled.set()

    # The end

    def _close_for(self, error: MillstreamError) -> None:
        status = status_of(error)
        words = f"{error.label}: {error.message}"
        self._service.traffic.refused += 1
        if status in _AWAY:
            self._socket.close(CloseCode.TRY_AGAIN_LATER, words)
        elif status >= 500:
            _log.error("a WebSocket over HTTP failed: %s", error)
            self._socket.close(CloseCode.INTERNAL_ERROR, words)
        else:
            self._socket.refuse(CloseCode.POLICY_VIOLATION, words)

    def _close_for_unforeseen(self, error: BaseException) -> None:
        _log.error("a WebSocket over HTTP failed in an unforeseen way", exc_info=error)
        self._socket.close(CloseCode.INTERNAL_ERROR, "The server met an error that it does not expect.")
