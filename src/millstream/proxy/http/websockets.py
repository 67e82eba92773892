"""Opens WebSockets over which consumer groups receive."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ConsumeRefused, Refused
from millstream.protocol.websocket import check_handshake
from millstream.proxy.http.answer import HttpAnswer
from millstream.proxy.http.deliveries import MAX_WAIT_MS
from millstream.proxy.http.problems import problem_answer
from millstream.proxy.http.request import HttpRequest
from millstream.proxy.http.service import HttpService
from millstream.proxy.http.settlement import DEFAULT_INVISIBLE_MS, DeliveryPlace
from millstream.proxy.http.websocket_session import WebSocketSession, admit
from millstream.proxy.processor import ReceiveRequest

__all__ = ["DEFAULT_IN_FLIGHT", "MAX_IN_FLIGHT", "MAX_WEBSOCKETS", "WebSocketResource"]

MAX_WEBSOCKETS: Final = 2_000
"""WebSockets of one port at the same time at most."""

MAX_IN_FLIGHT: Final = 1_000
"""Messages that the client of one WebSocket may have without having settled them, at most."""

DEFAULT_IN_FLIGHT: Final = 32
"""The same where the client names no number."""

_UPGRADE_REQUIRED: Final = 426


class WebSocketResource:
    """Takes the requests to /v1/groups/GROUP/topics/TOPIC/websocket."""

    def __init__(self, service: HttpService) -> None:
        self._service = service
        self._processor = service.processor
        self._open = 0

    async def open(self, request: HttpRequest, group: str, topic: str) -> HttpAnswer | None:
        """Serve a WebSocket until it ends."""
        place = DeliveryPlace(request.space.whole(group), request.space.whole(topic))
        self._service.gate.allow(request, "websocket", place.wishes)
        query = request.query
        max_in_flight = query.number("max_in_flight", DEFAULT_IN_FLIGHT, 1, MAX_IN_FLIGHT)
        wish = ReceiveRequest(
            client_id=request.client_id,
            group=place.group,
            topic=place.topic,
            broker_name="",
            invisible_ms=query.duration_ms("invisible", DEFAULT_INVISIBLE_MS),
            filter=query.message_filter(),
            wait_ms=MAX_WAIT_MS,
        )
        query.finish()
        refusal = check_handshake(request.headers)
        if refusal is not None or request.open_websocket is None:
            words = refusal.words if refusal is not None else "A WebSocket is opened by a GET of HTTP/1.1."
            is_upgrade = refusal is None or refusal.status == _UPGRADE_REQUIRED
            answer = problem_answer(Refused("HTTP_UPGRADE" if is_upgrade else "HTTP_REQUEST", words))
            fields = refusal.fields if refusal is not None else ()
            answer.headers = (*answer.headers, *((name.lower().encode(), value.encode()) for name, value in fields))
            return answer
        if self._open >= MAX_WEBSOCKETS:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_WEBSOCKETS} WebSockets are open, which is the limit.")
        self._processor.check_wish(wish)
        admit(self._service, wish, request.user)
        await self._processor.group(wish.group)
        await self._processor.backend.route(wish.topic)
        socket = request.open_websocket(request.headers)
        self._open += 1
        self._service.traffic.sessions += 1
        try:
            await WebSocketSession(self._service, request, socket, wish, max_in_flight).run()
        finally:
            self._open -= 1
            self._service.traffic.sessions -= 1
        return None
