"""How the members of a group get a topic's messages: by pulling queues of their own, or by popping."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from millstream.broker.document import Document, SavedDocument
from millstream.model.errors import NameRefused
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_REQUEST_MODES", "PULLS", "RequestKind", "RequestMode", "RequestModes"]

MAX_REQUEST_MODES: Final = 10_000
"""Pairs of topic and group with a mode of their own at most: every change writes all of them."""

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
    """The modes by topic and group. Changes are on the disk before the call returns. `load` before use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._saved = SavedDocument(snapshot, _Document, noun="request modes", version=_VERSION)
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def load(self) -> None:
        """Read what was saved. Raises STORE_FORMAT."""
        document = self._saved.load()
        for topic, groups in document.topics.items() if document else ():
            self._modes.update({(topic, group): mode for group, mode in groups.items()})

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
        self._replace({**self._modes, key: mode})

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop all of a topic or all of a group."""
        kept = {key: mode for key, mode in self._modes.items() if key[0] != topic and key[1] != group}
        if len(kept) < len(self._modes):
            self._replace(kept)

    def _replace(self, modes: dict[tuple[str, str], RequestMode]) -> None:
        topics: dict[str, dict[str, RequestMode]] = {}
        for (topic, group), mode in modes.items():
            topics.setdefault(topic, {})[group] = mode
        self._saved.save(_Document(version=_VERSION, topics=topics))
        self._modes = modes
