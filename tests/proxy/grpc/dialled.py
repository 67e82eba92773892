"""Calls of the service over a real connection, with stubs that let any bytes through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc.aio
from service_calls import METADATA, message, receive_request

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS

CLIENT_ID = (("x-mq-client-id", METADATA["x-mq-client-id"]),)


class Dialled:
    """A channel to the server under test."""

    def __init__(self, port: int) -> None:
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)

    def method(self, name: str) -> Any:
        return METHODS[name].stub(self.channel)

    def begun(self, name: str) -> Any:
        """A call of a unary method whose request has not come yet."""
        return replace(METHODS[name], client_streams=True, server_streams=True).stub(self.channel)(
            metadata=CLIENT_ID, timeout=20
        )

    async def raw(self, name: str, request: bytes, metadata: Any = CLIENT_ID) -> Any:
        """The first answer to bytes that need not be a request."""
        method = METHODS[name]
        call = self.channel.unary_stream(method.path, response_deserializer=method.response.FromString)
        return await call(request, metadata=metadata, timeout=10).read()

    async def ask(self, name: str, request: Any, metadata: Any = CLIENT_ID, timeout_s: float = 10) -> Any:
        """The status of the answer, or of its first frame."""
        if METHODS[name].server_streams:
            frame = await self.method(name)(request, metadata=metadata, timeout=timeout_s).read()
            return frame.status
        return (await self.method(name)(request, metadata=metadata, timeout=timeout_s)).status

    async def send(self, body: bytes) -> Any:
        request = m.SendMessageRequest(messages=[message(body=body)])
        return await self.method("SendMessage")(request, metadata=CLIENT_ID, timeout=10)

    def receive(self, polling_s: int = 10) -> Any:
        request = receive_request(long_polling_timeout=m.Duration(seconds=polling_s))
        return self.method("ReceiveMessage")(request, metadata=CLIENT_ID, timeout=20)

    def telemetry(self, metadata: Any = CLIENT_ID) -> Any:
        return self.method("Telemetry")(metadata=metadata)
