"""The caller, the deadline and the needed permissions of a call, as in RocketMQ's access control 2.0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

from google.protobuf.message import Message

from millstream.model.errors import ConsumeRefused
from millstream.model.message import Address
from millstream.protocol.grpc import messages as m
from millstream.proxy.grpc.namespace import NO_NAMESPACE, Namespace
from millstream.security.guard import Guard
from millstream.security.policy import Action, RequiredAccess
from millstream.security.resource import Resource

__all__ = ["MAX_HEADER_BYTES", "NEEDS", "PEER_KEY", "GrpcCall", "GrpcGate"]


_UNKNOWN_PEER = Address("127.0.0.1", 0)
"""Stands for a client whose address the transport does not tell."""

PEER_KEY = "rpc-remote-address"
"""Metadata name under which the transport notes the caller's address, as in `192.0.2.7:50312`."""

MAX_HEADER_BYTES = 16 * 1024
"""Bytes of a call's headers, names and values, at most."""

_MAX_CLIENT_ID_CHARACTERS = 255


@dataclass(slots=True)
class GrpcCall:
    """One call. `deadline_s` is the time left when it arrived, None for calls that wait as long as it takes."""

    client_id: str
    peer: Address
    deadline_s: float | None = None
    space: Namespace = NO_NAMESPACE
    """In which its names stand."""

    @classmethod
    def of(cls, metadata: Mapping[str, str], deadline_s: float | None) -> GrpcCall:
        """The call of a request's metadata; HEADERS_TOO_LARGE, and CLIENT_ID_REQUIRED without x-mq-client-id."""
        size_bytes = len("".join((*metadata, *metadata.values())))
        if size_bytes > MAX_HEADER_BYTES:
            raise ConsumeRefused(
                "HEADERS_TOO_LARGE", f"The headers have {size_bytes} bytes; the limit is {MAX_HEADER_BYTES}."
            )
        client_id = metadata.get("x-mq-client-id", "")
        if not client_id or len(client_id) > _MAX_CLIENT_ID_CHARACTERS:
            raise ConsumeRefused(
                "CLIENT_ID_REQUIRED",
                f"The header x-mq-client-id has {len(client_id)} characters, not 1 to {_MAX_CLIENT_ID_CHARACTERS}.",
            )
        return cls(client_id, _peer(metadata.get(PEER_KEY, "")), deadline_s, NO_NAMESPACE)


@lru_cache(maxsize=4096)
def _peer(text: str) -> Address:
    host, _, port = text.rpartition(":")
    # Records hold plain IP addresses: the zone of a link-local one is left out.
    host = host.strip("[]").partition("%")[0]
    try:
        return Address(str(ip_address(host)), int(port))
    except ValueError:
        return _UNKNOWN_PEER


class GrpcGate:
    """Lets calls through that `guard` allows; None lets everybody in, whatever the headers say.

    A method without a row in `NEEDS` is for super users.
    """

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard

    @property
    def is_closed(self) -> bool:
        """Whether callers have to say who they are."""
        return self._guard is not None

    def caller(self, method: str, metadata: Mapping[str, str]) -> str:
        """The user who signed the headers, blank where access control is off; UNAUTHORIZED."""
        if self._guard is None:
            return ""
        authorization, date_time = metadata.get("authorization", ""), metadata.get("x-mq-date-time", "")
        return self._guard.caller_of_headers(authorization, date_time, peer=_host(metadata), action=method)

    def check(self, method: str, metadata: Mapping[str, str], request: Message, owner: str = "") -> str:
        """The user who may do what the call asks, blank where access control is off; UNAUTHORIZED, ACCESS_DENIED.

        `owner` is the user whose client has used the call's client id, if there is one: what the server says to a
        client may hold messages, and nobody else may take its place or end it.
        """
        if self._guard is None:
            return ""
        peer = _host(metadata)
        caller = self.caller(method, metadata)
        if owner not in ("", caller):
            self._guard.refuse_foreign_client(caller, peer=peer, action=method)
        needs = NEEDS.get(method)
        if needs is None:
            self._guard.require_super(caller, peer=peer, action=method)
        else:
            self._guard.allow(caller, needs(request), peer=peer, action=method)
        return caller


def _host(metadata: Mapping[str, str]) -> str:
    return metadata.get(PEER_KEY, "").rpartition(":")[0].strip("[]")


def _route(request: m.QueryRouteRequest) -> Iterable[RequiredAccess]:
    yield RequiredAccess(Resource.topic(request.topic.name), (Action.PUB, Action.SUB, Action.GET))


def _send(request: m.SendMessageRequest) -> Iterable[RequiredAccess]:
    # Messages of several topics are refused later; until then each of the topics counts.
    return [RequiredAccess.publish(name) for name in dict.fromkeys(message.topic.name for message in request.messages)]


def _publish(request: Any) -> Iterable[RequiredAccess]:
    yield RequiredAccess.publish(request.topic.name)


def _consume(request: Any) -> Iterable[RequiredAccess]:
    yield RequiredAccess.consume(request.group.name)
    yield RequiredAccess.read(request.topic.name)


def _consume_queue(request: Any) -> Iterable[RequiredAccess]:
    yield RequiredAccess.consume(request.group.name)
    yield RequiredAccess.read(request.message_queue.topic.name)


def _query_offset(request: m.QueryOffsetRequest) -> Iterable[RequiredAccess]:
    yield RequiredAccess.read(request.message_queue.topic.name)


def _member(request: Any) -> Iterable[RequiredAccess]:
    """Producers name no group; every user may say that it lives, and that it ends."""
    if request.group.name:
        yield RequiredAccess.consume(request.group.name)


def _telemetry(request: m.TelemetryCommand) -> Iterable[RequiredAccess]:
    settings = request.settings
    for topic in settings.publishing.topics:
        yield RequiredAccess.publish(topic.name)
    if settings.WhichOneof("pub_sub") == "subscription":
        yield RequiredAccess.consume(settings.subscription.group.name)
        for entry in settings.subscription.subscriptions:
            yield RequiredAccess.read(entry.topic.name)


NEEDS: dict[str, Callable[[Any], Iterable[RequiredAccess]]] = {
    "QueryRoute": _route,
    "Heartbeat": _member,
    "SendMessage": _send,
    "QueryAssignment": _consume,
    "ReceiveMessage": _consume_queue,
    "AckMessage": _consume,
    "ForwardMessageToDeadLetterQueue": _consume,
    "PullMessage": _consume_queue,
    "UpdateOffset": _consume_queue,
    "GetOffset": _consume_queue,
    "QueryOffset": _query_offset,
    "EndTransaction": _publish,
    "Telemetry": _telemetry,
    "NotifyClientTermination": _member,
    "ChangeInvisibleDuration": _consume,
    "RecallMessage": _publish,
    "SyncLiteSubscription": _consume,
}
"""Method -> what a request of it needs."""
