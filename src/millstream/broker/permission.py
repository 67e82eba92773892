"""Tells whether a broker accepts new messages; a drained broker is read until it is empty, then stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import NameRefused
from millstream.model.topic import Permission, TopicConfig
from millstream.store.snapshot import Snapshot

__all__ = ["BrokerPermission"]

_VERSION = 1
_WRITE = int(Permission.WRITE)


class _Document(Document):
    permission: int


class BrokerPermission:
    """What clients may do with all topics of a broker; saved, so that it holds after a restart.

    `on_change` is called after each change.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        saved = SavedDocument(snapshot, _Document, noun="permission of the broker", version=_VERSION)
        self.table = StateTable("permission", saved, int, self)
        """Its saved form, with one key."""
        self.value = Permission.READ | Permission.WRITE
        self.on_change: list[Callable[[], None]] = []

    def make_document(self) -> _Document:
        """The permission."""
        return _Document(version=_VERSION, permission=int(self.value))

    def load_document(self, document: _Document) -> None:
        """Take up the saved permission."""
        self.value = Permission(document.permission)

    def apply_change(self, key: str, value: int | None) -> None:
        """Have this permission."""
        if value is not None:
            self.value = Permission(value)

    @property
    def is_drained(self) -> bool:
        """Whether new messages are refused."""
        return not int(self.value) & _WRITE

    def put(self, value: Permission) -> None:
        """Change it; on disk when this returns. Raises STORE_FAILED, DISK_FULL."""
        if value == self.value:
            return
        self.table.write("", int(value))
        self.value = value
        for listener in self.on_change:
            listener()

    def apply_to(self, topic: TopicConfig) -> TopicConfig:
        """The topic with what clients may do with it at this broker, for nameservers."""
        return replace(topic, permission=topic.permission & ~Permission.WRITE) if self.is_drained else topic

    def check_writable(self, broker_name: str) -> None:
        """Refuse a send where the broker is drained: BROKER_DRAINED."""
        if self.is_drained:
            raise NameRefused("BROKER_DRAINED", f"The broker {broker_name} is drained and takes no new messages.")
