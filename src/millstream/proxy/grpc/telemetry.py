"""Telemetry, heartbeat and termination: the life of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from millstream.protocol.grpc import messages as m
from millstream.proxy.clients import PRODUCER
from millstream.proxy.grpc.call import Call
from millstream.proxy.grpc.commands import answer_of, telemetry_command
from millstream.proxy.grpc.filter import message_filter
from millstream.proxy.grpc.settings import check_role, consumer_settings, producer_settings
from millstream.proxy.grpc.status import ok
from millstream.proxy.processor import Processor

__all__ = ["TelemetryHandlers"]

_MAX_VERSION_CHARACTERS = 64


class TelemetryHandlers:
    """One telemetry stream per client and endpoints; it stays open as long as the client lives."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    async def telemetry(
        self, call: Call, requests: AsyncIterator[m.TelemetryCommand]
    ) -> AsyncGenerator[m.TelemetryCommand, None]:
        """Answers each settings command with the settings that hold, and says what the outbox has in between.

        Raises the refusal of settings that name no role, or a group or a filter that is not legal. A client that does
        not read its stream is not read either.
        """
        outbox = self._processor.stream_opened(call.client_id)
        reading = asyncio.create_task(_next(requests))
        telling = asyncio.create_task(outbox.first())
        try:
            while True:
                await asyncio.wait((reading, telling), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    command = reading.result()
                    if command is None:
                        return
                    answer = await self._heard(call, command)
                    if answer is not None:
                        yield answer
                    reading = asyncio.create_task(_next(requests))
                if telling.done():
                    yield telemetry_command(telling.result())
                    outbox.sent()
                    telling = asyncio.create_task(outbox.first())
        finally:
            reading.cancel()
            telling.cancel()
            await asyncio.gather(reading, telling, return_exceptions=True)
            self._processor.stream_closed(call.client_id, outbox)

    async def _heard(self, call: Call, command: m.TelemetryCommand) -> m.TelemetryCommand | None:
        """The answer to a client's command, if it wants one."""
        self._processor.seen(call.client_id)
        if command.WhichOneof("command") == "settings":
            return m.TelemetryCommand(status=ok(), settings=await self._answer(call, command.settings))
        answer = answer_of(command)
        if answer is not None:
            self._processor.answered(call.client_id, *answer)
        return None

    async def heartbeat(self, call: Call, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        """The client lives. One that is unknown, as after a restart of the server, is welcome.

        What it said of itself in its settings holds: some clients name no type here.
        """
        group = request.group.name if request.HasField("group") else ""
        record = self._processor.clients.find(call.client_id)
        kind = "" if record is not None and record.kind else _kind(request.client_type)
        self._processor.declare(call.client_id, kind, group=group)
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
        if asked.WhichOneof("pub_sub") == "publishing":
            topics = [topic.name for topic in asked.publishing.topics]
            self._processor.declare(call.client_id, PRODUCER, topics=topics)
            self._processor.clients.name_agent(call.client_id, *_agent(asked.user_agent))
            return producer_settings(asked)
        for entry in asked.subscription.subscriptions:
            message_filter(entry.expression)
        topics = [entry.topic.name for entry in asked.subscription.subscriptions]
        group = await self._processor.group(asked.subscription.group.name)
        self._processor.declare(call.client_id, _kind(asked.client_type), group=group.name, topics=topics)
        self._processor.clients.name_agent(call.client_id, *_agent(asked.user_agent))
        return consumer_settings(asked, group)


async def _next(requests: AsyncIterator[m.TelemetryCommand]) -> m.TelemetryCommand | None:
    return await anext(requests, None)


def _agent(told: m.UA) -> tuple[str, str]:
    """The client's language and version, as far as they can be told; a version may be any text."""
    named = m.Language.DESCRIPTOR.values_by_number.get(told.language)
    language = named.name.lower() if named and told.language else ""
    return language, told.version[:_MAX_VERSION_CHARACTERS]


def _kind(client_type: m.ClientType) -> str:
    """The name of the type; blank where the client named none."""
    if client_type == m.CLIENT_TYPE_UNSPECIFIED:
        return ""
    # A number that this release does not know is kept as text: it is told to people only.
    named = m.ClientType.DESCRIPTOR.values_by_number.get(client_type)
    return named.name if named else str(client_type)
