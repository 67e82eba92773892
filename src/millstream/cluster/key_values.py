"""The nameserver's key-value settings, by namespace and key; clients read queue orders from them."""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.errors import ConsumeRefused, NameRefused, StoreError
from millstream.store.files import refusal_name
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_KEY_VALUES", "MAX_NAME_CHARACTERS", "MAX_VALUE_BYTES", "ORDER_NAMESPACE", "KeyValues"]

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Topic -> `broker:queues;broker:queues`: the order of its queues, which routes tell."""

MAX_KEY_VALUES: Final = 10_000
"""Keys of all namespaces at most: every change writes all of them."""

MAX_NAME_CHARACTERS: Final = 255
"""Characters of a namespace or a key at most."""

MAX_VALUE_BYTES: Final = 16 * 1024
"""Bytes of one value at most."""

_VERSION: Final = 1


class _Document(msgspec.Struct):
    version: int
    namespaces: dict[str, dict[str, str]]


class KeyValues:
    """Values in memory; with a snapshot changes are on the disk before the call returns, and outlive a restart.

    Raises STORE_FORMAT where what was saved cannot be read.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._namespaces: dict[str, dict[str, str]] = {}
        saved = None if snapshot is None else snapshot.load()
        if saved is not None:
            self._namespaces = _decode(saved).namespaces

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def table(self, namespace: str) -> dict[str, str]:
        """All values of a namespace by key; {} for one that is not there."""
        return dict(self._namespaces.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Keep a value. Raises ILLEGAL_SETTING (too long), TOO_MANY_REQUESTS (too many keys), STORE_FAILED."""
        if max(len(namespace), len(key)) > MAX_NAME_CHARACTERS or len(value.encode()) > MAX_VALUE_BYTES:
            raise NameRefused(
                "ILLEGAL_SETTING",
                f"The key {key[:80]!r} of {namespace[:80]!r} or its value is too long.",
                remedy=f"Keep to {MAX_NAME_CHARACTERS} characters for names and {MAX_VALUE_BYTES} bytes for the value.",
            )
        held = self._namespaces.get(namespace, {})
        if key not in held and sum(map(len, self._namespaces.values())) >= MAX_KEY_VALUES:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS", f"The nameserver keeps {MAX_KEY_VALUES} keys, which is its limit."
            )
        self._replace({**self._namespaces, namespace: {**held, key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Drop a value; no error if there is none. Raises STORE_FAILED."""
        held = self._namespaces.get(namespace, {})
        if key not in held:
            return
        left = {other: value for other, value in held.items() if other != key}
        kept = {name: table for name, table in self._namespaces.items() if name != namespace}
        self._replace({**kept, namespace: left} if left else kept)

    def _replace(self, namespaces: dict[str, dict[str, str]]) -> None:
        """Save first: what could not be saved is not there, so that it does not vanish with a restart."""
        if self._snapshot is not None:
            text = msgspec.json.format(msgspec.json.encode(_Document(_VERSION, namespaces)), indent=1)
            try:
                self._snapshot.save(text)
            except OSError as error:
                name = refusal_name(error, "STORE_FAILED")
                raise StoreError(name, f"The nameserver's keys cannot be saved: {error}.") from error
        self._namespaces = namespaces


def _decode(saved: bytes) -> _Document:
    try:
        document = msgspec.json.decode(saved, type=_Document)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"The nameserver's keys cannot be read: {error}.") from None
    if document.version != _VERSION:
        raise StoreError("STORE_FORMAT", f"The nameserver's keys are of version {document.version}, not {_VERSION}.")
    return document
