"""Telemetry, heartbeat and termination: the life of a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.filter import message_filter
from millstream.proxy.grpc.settings import check_role, consumer_settings, producer_settings
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import Processor

__all__ = ["TelemetryHandlers"]


class TelemetryHandlers:
    """One telemetry stream per client and endpoints; it stays open as long as the client lives."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def telemetry(
        self, call: Call, requests: AsyncIterator[m.TelemetryCommand]
    ) -> AsyncGenerator[m.TelemetryCommand, None]:
        """Answers each settings command with the settings that hold; other commands answer what nobody asked here.

        Raises the refusal of settings that name no role, or a group or a filter that is not legal.
        """
        self._processor.stream_opened(call.client_id)
        try:
            async for command in requests:
                self._processor.seen(call.client_id)
                if command.WhichOneof("command") == "settings":
                    yield m.TelemetryCommand(status=ok(), settings=await self._answer(call, command.settings))
        finally:
            self._processor.stream_closed(call.client_id)

    async def heartbeat(self, call: Call, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        """The client lives. One that is unknown, as after a restart of the server, is welcome."""
        group = request.group.name if request.HasField("group") else ""
        self._processor.declare(call.client_id, _kind(request.client_type), group=group)
        return m.HeartbeatResponse(status=ok())

    async def notify_client_termination(
        self, call: Call, request: m.NotifyClientTerminationRequest
    ) -> m.NotifyClientTerminationResponse:
        """The client ends; what it holds goes back."""
        group = request.group.name if request.HasField("group") else None
        await self._processor.terminate(call.client_id, group)
        return m.NotifyClientTerminationResponse(status=ok())

    async def _answer(self, call: Call, asked: m.Settings) -> m.Settings:
        check_role(call.client_id, asked)
        kind = _kind(asked.client_type)
        if asked.WhichOneof("pub_sub") == "publishing":
            topics = [topic.name for topic in asked.publishing.topics]
            self._processor.declare(call.client_id, kind, topics=topics)
            return producer_settings(asked)
        for entry in asked.subscription.subscriptions:
            message_filter(entry.expression)
        topics = [entry.topic.name for entry in asked.subscription.subscriptions]
        group = await self._processor.group(asked.subscription.group.name)
        self._processor.declare(call.client_id, kind, group=group.name, topics=topics)
        return consumer_settings(asked, group)


def _kind(client_type: m.ClientType) -> str:
    # A number that this release does not know is kept as text: it is told to people only.
    named = m.ClientType.DESCRIPTOR.values_by_number.get(client_type)
    return named.name if named else str(client_type)
