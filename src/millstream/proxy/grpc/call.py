"""Who calls and how long it waits: what a handler knows of a call beside the request itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from millstream.model.errors import ConsumeRefused
from millstream.model.message import Address
from millstream.proxy.grpc.namespace import NO_NAMESPACE, Namespace

__all__ = ["MAX_HEADER_BYTES", "PEER_KEY", "GrpcCall"]

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
