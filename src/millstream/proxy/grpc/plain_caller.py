"""The client of ordinary calls, looked at in full once and known by its headers after that."""

from __future__ import annotations

from typing import Final

from millstream.model.message import Address
from millstream.proxy.grpc.adapter import MessagingAdapter
from millstream.proxy.grpc.call import MAX_HEADER_BYTES, PEER_KEY
from millstream.proxy.grpc.namespace import NAMESPACE_HEADER

__all__ = ["PlainCaller"]

_CLIENT_ID: Final = "x-mq-client-id"
_NAMESPACE: Final = NAMESPACE_HEADER
_PEER: Final = PEER_KEY
_MAX_HEADER_BYTES: Final = MAX_HEADER_BYTES


class PlainCaller:
    """Lets ordinary calls in, and keeps whom it let in last: calls in a row are mostly of one client."""

    __slots__ = ("_adapter", "_address", "_client_id", "_peer")

    def __init__(self, adapter: MessagingAdapter) -> None:
        self._adapter = adapter
        self._client_id: str | None = None
        self._address: str | None = None
        self._peer: Address | None = None

    def enter(self, metadata: dict[str, str], now_s: float) -> Address | None:
        """Note that the client of a call lives; its address. None for headers that somebody has to look at closer."""
        if self.is_last(metadata):
            self._adapter.note_alive(metadata[_CLIENT_ID], now_s)
            return self._peer
        peer = self._adapter.enter_plain(metadata, now_s)
        if peer is not None:
            self._client_id, self._address, self._peer = metadata.get(_CLIENT_ID), metadata.get(_PEER), peer
        return peer

    def is_last(self, metadata: dict[str, str]) -> bool:
        """Whether these are headers of the client that entered last, from the same address, in which nobody has to look
        at anything else."""
        client_id = self._client_id
        if client_id is None or metadata.get(_CLIENT_ID) != client_id or metadata.get(_PEER) != self._address:
            return False
        size = 0
        for name, value in metadata.items():
            size += len(name) + len(value)
        return size <= _MAX_HEADER_BYTES and _NAMESPACE not in metadata
