"""Calls of the service's handlers as a transport makes them, but without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.late_frame import LateFrame

METADATA = {"x-mq-client-id": "host@1@0@abc", "x-mq-language": "PYTHON", "rpc-remote-address": "192.0.2.7:50312"}


@dataclass
class Service:
    """One client's calls. `deadline_s` goes with each of them."""

    adapter: MessagingAdapter
    metadata: dict[str, str]
    deadline_s: float | None = 3.0

    async def call(self, name: str, request: Any) -> Any:
        answer = await self.adapter.unary(name, self.metadata, request, self.deadline_s)
        return METHODS[name].response.FromString(answer) if isinstance(answer, bytes) else answer

    async def frames(self, name: str, request: Any) -> list[Any]:
        response = METHODS[name].response
        frames = await self.adapter.streaming(name, self.metadata, request, self.deadline_s)
        made = [await frame.make(frames) if isinstance(frame, LateFrame) else frame for frame in frames]
        return [response.FromString(frame) if isinstance(frame, bytes) else frame for frame in made]

    async def telemetry(self, *commands: Any) -> list[Any]:
        async def said() -> AsyncIterator[Any]:
            for command in commands:
                yield command

        return [answer async for answer in self.adapter.telemetry(self.metadata, said())]

    async def send(self, topic: str = "orders", body: bytes = b"body", **system: Any) -> Any:
        return await self.call("SendMessage", m.SendMessageRequest(messages=[message(topic, body, **system)]))

    async def receive(self, topic: str = "orders", group: str = "g", **wish: Any) -> list[Any]:
        return await self.frames("ReceiveMessage", receive_request(topic, group, **wish))


def message(topic: str = "orders", body: bytes = b"body", *, user: dict[str, str] | None = None, **system: Any) -> Any:
    filled = {"message_id": "01ABC", "body_encoding": m.IDENTITY, "born_host": "laptop"} | system
    return m.Message(
        topic=m.Resource(name=topic),
        body=body,
        user_properties=user or {},
        system_properties=m.SystemProperties(**filled),
    )


def receive_request(topic: str = "orders", group: str = "g", **wish: Any) -> Any:
    filled: dict[str, Any] = {
        "group": m.Resource(name=group),
        "message_queue": m.MessageQueue(topic=m.Resource(name=topic), id=-1, broker=m.Broker(name="broker-a")),
        "filter_expression": m.FilterExpression(type=m.TAG, expression="*"),
        "batch_size": 32,
        "invisible_duration": m.Duration(seconds=30),
        "long_polling_timeout": m.Duration(seconds=0),
    }
    return m.ReceiveMessageRequest(**(filled | wish))
