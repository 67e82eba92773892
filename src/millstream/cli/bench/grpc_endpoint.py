"""The benchmark load over gRPC: bare calls of the service, without a client library."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from millstream.client.outgoing import MessageIds
from millstream.client.profiles import TLS_CA_VARIABLE, credentials_of_environment
from millstream.model.errors import ConnectionFailed, MillstreamError, Refused, TimedOut, Unreachable
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.security.signature import header_digest

__all__ = ["GrpcEndpoint"]

_INVISIBLE_S: Final = 60
_CLIENT_ID: Final = f"millstream-bench@{os.getpid()}"


class GrpcEndpoint:
    """SendMessage of one message each; ReceiveMessage of up to `batch` messages and AckMessage of all of them."""

    def __init__(self, address: str, topic: str, group: str, *, batch: int, lanes: int, timeout_s: float) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        trusted = os.environ.get(TLS_CA_VARIABLE)
        if trusted:
            roots = None if trusted == "system" else Path(trusted).read_bytes()
            channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(roots), options=options)
        else:
            channel = grpc.aio.insecure_channel(address, options=options)
        self._address = address
        self._channel = channel
        self._topic, self._group = m.Resource(name=topic), m.Resource(name=group)
        self._batch, self._lanes, self._timeout_s = batch, lanes, timeout_s
        self._ids = MessageIds()
        self._send = METHODS["SendMessage"].stub(channel)
        self._receive = METHODS["ReceiveMessage"].stub(channel)
        self._ack = METHODS["AckMessage"].stub(channel)

    @property
    def lanes(self) -> int:
        """As many as were asked for: a queue has any number of receivers."""
        return self._lanes

    async def send(self, body: bytes) -> None:
        """See `Endpoint`."""
        system = m.SystemProperties(
            message_id=self._ids.next(), message_type=m.NORMAL, body_encoding=m.IDENTITY, born_host="bench"
        )
        system.born_timestamp.GetCurrentTime()
        message = m.Message(topic=self._topic, system_properties=system, body=body)
        self._check((await self._ask(self._send, m.SendMessageRequest(messages=[message]))).status)

    async def receive(self, lane: int, *, wait_ms: int) -> Sequence[bytes]:
        """See `Endpoint`."""
        request = m.ReceiveMessageRequest(
            group=self._group,
            message_queue=m.MessageQueue(topic=self._topic, id=-1),
            filter_expression=m.FilterExpression(type=m.TAG, expression="*"),
            batch_size=self._batch,
            invisible_duration=m.Duration(seconds=_INVISIBLE_S),
            long_polling_timeout=m.Duration(seconds=wait_ms // 1000, nanos=wait_ms % 1000 * 1_000_000),
        )
        found = []
        try:
            async for frame in self._receive(
                request, metadata=self._headers(), timeout=self._timeout_s + wait_ms / 1000
            ):
                if frame.HasField("message"):
                    found.append(frame.message)
                elif frame.HasField("status") and frame.status.code != m.MESSAGE_NOT_FOUND:
                    self._check(frame.status)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None
        if found:
            entries = [
                m.AckMessageEntry(
                    message_id=message.system_properties.message_id,
                    receipt_handle=message.system_properties.receipt_handle,
                )
                for message in found
            ]
            acknowledgement = m.AckMessageRequest(group=self._group, topic=self._topic, entries=entries)
            self._check((await self._ask(self._ack, acknowledgement)).status)
        return [message.body for message in found]

    async def rewind(self, lane: int) -> bool:
        """Not here: what is acknowledged does not come again."""
        return False

    async def close(self) -> None:
        """See `Endpoint`."""
        await self._channel.close()

    async def _ask(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=self._headers(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None

    def _headers(self) -> tuple[tuple[str, str], ...]:
        headers = (("x-mq-client-id", _CLIENT_ID), ("x-mq-language", "PYTHON"))
        credentials = credentials_of_environment()
        if credentials is None:
            return headers
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signature = header_digest(credentials.secret_key, now).hex().upper()
        signed = (
            f"MQv2-HMAC-SHA1 Credential={credentials.access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
        )
        return (*headers, ("x-mq-date-time", now), ("authorization", signed))

    def _check(self, status: Any) -> None:
        if status.code != m.OK:
            raise Refused("REFUSED_BY_SERVER", f"{self._address} answered code {status.code}: {status.message}")

    def _failure(self, error: grpc.aio.AioRpcError) -> MillstreamError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            words = f"{self._address} cannot be reached over gRPC."
            return Unreachable(words, remedy="Name the proxy's address: --grpc HOST:PORT.")
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return TimedOut(f"{self._address} did not answer within {self._timeout_s:g} s.")
        return ConnectionFailed("PROTOCOL_VIOLATION", f"{self._address}: {error.code().name} {error.details()}.")
