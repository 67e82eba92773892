"""The methods of apache.rocketmq.v2.MessagingService: request and response types, and which side streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from millstream.protocol.grpc.messages import POOL

__all__ = ["METHODS", "SERVICE_NAME", "Method"]

SERVICE_NAME = "apache.rocketmq.v2.MessagingService"


@dataclass(frozen=True, slots=True)
class Method:
    """One remote call. `path` is the HTTP/2 path; a streaming side carries any number of messages."""

    name: str
    request: type[Message]
    response: type[Message]
    client_streams: bool
    server_streams: bool

    @property
    def path(self) -> str:
        """As in `/apache.rocketmq.v2.MessagingService/SendMessage`."""
        return f"/{SERVICE_NAME}/{self.name}"

    def stub(self, channel: Any) -> Any:
        """What calls the method over a channel of grpc or grpc.aio."""
        kind = f"{'stream' if self.client_streams else 'unary'}_{'stream' if self.server_streams else 'unary'}"
        return getattr(channel, kind)(
            self.path,
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )


def _methods() -> dict[str, Method]:
    service = POOL.FindServiceByName(SERVICE_NAME)
    return {
        method.name: Method(
            method.name,
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    }


METHODS = _methods()
"""Method name -> method, all of the service."""
