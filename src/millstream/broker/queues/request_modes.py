"""How the members of a group get a topic's messages: by pulling queues of their own, or by popping."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import NameRefused
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_REQUEST_MODES", "PULLS", "RequestKind", "RequestMode", "RequestModes"]

MAX_REQUEST_MODES: Final = 10_000
"""Pairs of topic and group with a mode of their own at most: all of them are in one document."""

_VERSION = 1


class RequestKind(Enum):
    """The two ways; the values are RocketMQ's."""

    PULL = "PULL"
    POP = "POP"


class RequestMode(msgspec.Struct, frozen=True):
    """A way, and for pops how many members' queues one member shares beside its own; 0 or less means all."""

    kind: RequestKind
    share_count: int = 0


PULLS: Final = RequestMode(RequestKind.PULL)
"""The mode where nobody has set another one."""


class _Document(Document):
    topics: dict[str, dict[str, RequestMode]]


class RequestModes:
    """The modes by topic and group. Changes are on the disk before the call returns."""

    def __init__(self, snapshot: Snapshot) -> None:
        saved = SavedDocument(snapshot, _Document, noun="request modes", version=_VERSION)
        self.table = StateTable("request-mode", saved, RequestMode, self)
        """Its saved form; the key is topic and group with a tab between them."""
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def make_document(self) -> _Document:
        """All modes."""
        topics: dict[str, dict[str, RequestMode]] = {}
        for (topic, group), mode in self._modes.items():
            topics.setdefault(topic, {})[group] = mode
        return _Document(version=_VERSION, topics=topics)

    def load_document(self, document: _Document) -> None:
        """Take up the saved modes."""
        for topic, groups in document.topics.items():
            self._modes.update({(topic, group): mode for group, mode in groups.items()})

    def apply_change(self, key: str, value: RequestMode | None) -> None:
        """Have this mode, or have it no more."""
        topic, _, group = key.partition("\t")
        if value is None:
            self._modes.pop((topic, group), None)
        else:
            self._modes[topic, group] = value

    def get(self, topic: str, group: str) -> RequestMode:
        """The mode of the group on the topic."""
        return self._modes.get((topic, group), PULLS)

    def put(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode. Raises TOO_MANY_REQUESTS, STORE_FAILED, DISK_FULL: then the old one holds."""
        key = (topic, group)
        if key not in self._modes and len(self._modes) >= MAX_REQUEST_MODES:
            raise NameRefused(
                "TOO_MANY_REQUESTS",
                f"{MAX_REQUEST_MODES} pairs of topic and group have a mode of their own, which is the limit.",
                remedy="Delete a group or topic.",
            )
        self.table.write(_key_of(topic, group), mode)
        self._modes[key] = mode

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop all of a topic or all of a group."""
        gone = [key for key in self._modes if key[0] == topic or key[1] == group]
        self.table.write_all((_key_of(*key), None) for key in gone)
        for key in gone:
            del self._modes[key]


def _key_of(topic: str, group: str) -> str:
    return f"{topic}\t{group}"
