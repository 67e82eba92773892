"""A backend that notes in a tracer what clients did through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, PoppedMessage, PopRequest, SendReceipt
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.tracer import Tracer

__all__ = ["trace_backend"]


def trace_backend(backend: BrokerBackend, tracer: Tracer, clock: Clock) -> BrokerBackend:
    """The backend; what becomes of messages is noted as well, as far as the call itself tells.

    What a change of the invisible time or the end of a transaction means is the caller's to note.
    """
    return cast("BrokerBackend", _TracedBackend(backend, tracer, clock))


class _TracedBackend:
    def __init__(self, backend: BrokerBackend, tracer: Tracer, clock: Clock) -> None:
        self._backend = backend
        self._tracer = tracer
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        """Operations that are not traced are the backend's own."""
        return getattr(self._backend, name)

    async def send(self, messages: Sequence[OutgoingMessage]) -> list[SendReceipt]:
        began_s = self._clock.monotonic_s()
        try:
            receipts = await self._backend.send(messages)
        except MillstreamError:
            self._tracer.note_send(messages, None, self._since_ms(began_s))
            raise
        self._tracer.note_send(messages, receipts, self._since_ms(began_s))
        return receipts

    async def recall(self, broker_name: str, topic: str, message_id: str) -> None:
        try:
            await self._backend.recall(broker_name, topic, message_id)
        except MillstreamError:
            self._tracer.note_recall(topic, message_id, succeeded=False)
            raise
        self._tracer.note_recall(topic, message_id, succeeded=True)

    async def pop(self, broker_name: str, request: PopRequest) -> list[PoppedMessage]:
        popped = await self._backend.pop(broker_name, request)
        if popped:
            self._tracer.note_delivery(request.group, request.topic, popped)
        return popped

    async def ack(self, request: AckRequest) -> None:
        await self._backend.ack(request)
        self._tracer.note_consumption(request.group, request.topic, request.handle, succeeded=True)

    async def dead_letter(self, request: AckRequest) -> None:
        await self._backend.dead_letter(request)
        self._tracer.note_consumption(request.group, request.topic, request.handle, succeeded=False)

    def _since_ms(self, began_s: float) -> int:
        return int((self._clock.monotonic_s() - began_s) * 1000)
