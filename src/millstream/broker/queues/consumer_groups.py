"""The consumer groups of a broker, and the state that their members share.

Groups and request modes are kept in memory; each change is written to the state log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Final

import msgspec

from millstream.broker.queues.queue_locks import LockedQueue, QueueLocks
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.clock import Clock
from millstream.model.errors import NameRefused, StoreError
from millstream.model.group import GroupConfig, check_group, is_tool_group
from millstream.store.snapshot import Snapshot

__all__ = [
    "MAX_GROUPS",
    "MAX_GROUPS_ON_THE_FLY",
    "MAX_REQUEST_MODES",
    "PULLS",
    "ConsumerGroups",
    "GroupRegistry",
    "Member",
    "MemberSource",
    "RequestKind",
    "RequestMode",
    "RequestModes",
]


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


class _ModesDocument(Document):
    topics: dict[str, dict[str, RequestMode]]


class RequestModes:
    """The modes by topic and group. Changes are on the disk before the call returns."""

    def __init__(self, snapshot: Snapshot) -> None:
        saved = SavedDocument(snapshot, _ModesDocument, noun="request modes", version=_VERSION)
        self.table = StateTable("request-mode", saved, RequestMode, self)
        """Its saved form; the key is topic and group with a tab between them."""
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def make_document(self) -> _ModesDocument:
        """All modes."""
        topics: dict[str, dict[str, RequestMode]] = {}
        for (topic, group), mode in self._modes.items():
            topics.setdefault(topic, {})[group] = mode
        return _ModesDocument(version=_VERSION, topics=topics)

    def load_document(self, document: _ModesDocument) -> None:
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


MAX_GROUPS = 10_000
"""Groups of one broker at most: all of them are in one document."""

MAX_GROUPS_ON_THE_FLY = 5_000
"""Groups beyond which none is added by its first use alone: there is room left for those that somebody creates."""


_log = logging.getLogger(__name__)


class _GroupsDocument(Document):
    groups: list[GroupConfig]


class GroupRegistry:
    """The groups by name. Changes are on disk before the call returns, but for a group that comes into being by its use
    while the disk is full: reading needs no room, so it is in memory until `save_unsaved` finds some.

    `auto_create` lets `ensure` add a group with default settings at its first use. `before_delete` is called with the
    name while the group is still there, `on_change` with that of a group that is new or gone.

    The groups of tools, which look at messages and keep no position, are not among them.
    """

    def __init__(self, snapshot: Snapshot, *, auto_create: bool = True) -> None:
        saved = SavedDocument(snapshot, _GroupsDocument, noun="groups", version=_VERSION)
        self.table = StateTable("group", saved, GroupConfig, self)
        """Its saved form."""
        self.auto_create = auto_create
        self._groups: dict[str, GroupConfig] = {}
        self._unwritten: set[str] = set()
        self.before_delete: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[str], None]] = []
        self.find_light_group: Callable[[str], GroupConfig | None] = lambda _name: None
        """Knows the groups of AMQP queues and shared subscriptions, which may have no settings; see `look_up`."""
        self.light_groups: Callable[[], Iterable[GroupConfig]] = tuple
        """All of these; for `list_known`."""

    def make_document(self) -> _GroupsDocument:
        """All groups."""
        return _GroupsDocument(version=_VERSION, groups=list(self._groups.values()))

    def load_document(self, document: _GroupsDocument) -> None:
        """Take up the saved groups."""
        self._groups = {group.name: group for group in document.groups if not is_tool_group(group.name)}

    def apply_change(self, key: str, value: GroupConfig | None) -> None:
        """Have the group, or have it no more."""
        if value is None:
            self._groups.pop(key, None)
        else:
            self._groups[key] = value

    def find(self, name: str) -> GroupConfig | None:
        """The group, or None."""
        return self._groups.get(name)

    def get(self, name: str) -> GroupConfig:
        """The group. Raises GROUP_NOT_FOUND."""
        group = self._groups.get(name)
        if group is None:
            raise NameRefused("GROUP_NOT_FOUND", f"The consumer group {name[:200]!r} does not exist.")
        return group

    def look_up(self, name: str) -> GroupConfig:
        """The group, or that of an AMQP queue which nobody gave settings. Raises GROUP_NOT_FOUND."""
        return self.find(name) or self.find_light_group(name) or self.get(name)

    def is_known(self, name: str) -> bool:
        """Whether `look_up` finds it."""
        return self.find(name) is not None or self.find_light_group(name) is not None

    def ensure(self, name: str) -> GroupConfig:
        """The group, created with default settings if it is missing and the broker may. Else GROUP_NOT_FOUND."""
        group = self._groups.get(name)
        if group is not None:
            return group
        if is_tool_group(name):
            return GroupConfig(name)
        if self.auto_create:
            if len(self._groups) >= MAX_GROUPS_ON_THE_FLY:
                raise NameRefused(
                    "TOO_MANY_REQUESTS",
                    f"The broker has {len(self._groups)} groups; the group {name[:200]!r} is not added by its use.",
                    remedy="Create the group: millstream group create NAME.",
                )
            try:
                self.create(GroupConfig(name))
            except StoreError as error:
                if error.name != "DISK_FULL":
                    raise
                _log.warning("The group %s is in memory alone until the disk has room: %s", name, error)
                self._groups[name] = GroupConfig(name)
                self._unwritten.add(name)
                self._announce(name)
        return self.get(name)

    def save_unsaved(self) -> None:
        """Put on the disk what it had no room for. Raises DISK_FULL while it still has none, and STORE_FAILED."""
        names = sorted(self._unwritten & self._groups.keys())
        self.table.write_all((name, self._groups[name]) for name in names)
        self._unwritten.clear()

    def ensure_enabled(self, name: str) -> GroupConfig:
        """As `ensure`, for those who want messages. Raises GROUP_DISABLED as well."""
        group = self.ensure(name)
        if not group.enabled:
            raise NameRefused("GROUP_DISABLED", f"The consumer group {name!r} is switched off.")
        return group

    def all(self) -> list[GroupConfig]:
        """All groups, by name."""
        return [self._groups[name] for name in sorted(self._groups)]

    def list_known(self) -> list[GroupConfig]:
        """All groups and those of AMQP queues, by name; of the latter as many as make up `MAX_GROUPS`."""
        room = max(MAX_GROUPS - len(self._groups), 0)
        light = islice((one for one in self.light_groups() if one.name not in self._groups), room)
        found = self._groups | {group.name: group for group in light}
        return [found[name] for name in sorted(found)]

    def create(self, group: GroupConfig) -> bool:
        """Add a group; True if it is new, False if it was there with equal settings.

        Raises ILLEGAL_GROUP, ILLEGAL_GROUP_SETTING, GROUP_EXISTS (with other settings).
        """
        check_group(group)
        present = self._groups.get(group.name)
        if present is not None:
            if present == group:
                return False
            raise NameRefused(
                "GROUP_EXISTS", f"The group {group.name!r} exists with other settings: {_words(present)}."
            )
        self._add(group)
        return True

    def update(self, group: GroupConfig) -> None:
        """Give a group other settings, or add it. Raises ILLEGAL_GROUP, ILLEGAL_GROUP_SETTING."""
        check_group(group)
        present = self._groups.get(group.name)
        if present is None:
            self._add(group)
        elif present != group:
            self._put(group)

    def _add(self, group: GroupConfig) -> None:
        if len(self._groups) >= MAX_GROUPS:
            raise NameRefused(
                "TOO_MANY_REQUESTS",
                f"The broker has {MAX_GROUPS} groups, which is its limit.",
                remedy="Delete a group.",
            )
        self._put(group)
        self._announce(group.name)

    def delete(self, name: str) -> None:
        """Remove a group and its offsets. Raises GROUP_NOT_FOUND."""
        self.get(name)
        for forget in self.before_delete:
            forget(name)
        self.table.write(name, None)
        self.apply_change(name, None)
        self._announce(name)

    def _put(self, group: GroupConfig) -> None:
        self.table.write(group.name, group)
        self.apply_change(group.name, group)

    def _announce(self, name: str) -> None:
        for listener in self.on_change:
            listener(name)


def _words(group: GroupConfig) -> str:
    kind = "fifo" if group.fifo else "not fifo"
    curve = group.exponential
    steps = ",".join(map(str, group.backoff_s))
    backoff = f"{steps} s" if curve is None else f"{curve.initial_ms} to {curve.longest_ms} ms by {curve.multiplier:g}"
    enabled = "" if group.enabled else ", switched off"
    return f"{kind}, {group.max_attempts} attempts, backoff {backoff}, begins at {group.first_position.value}{enabled}"


Member = tuple[str, str, str, int, str]
"""A member of a group: client id, address, language, version and protocol."""

MemberSource = Callable[[str], Iterable[Member]]
"""The members of a group by its name."""


class ConsumerGroups(GroupRegistry):
    """The groups by name, and what the members of each share.

    `locks` is the broker's own, which asks it where messages come back in order. `member_sources` are asked for the
    members of a group that the broker does not know itself, as those of a proxy.
    """

    def __init__(
        self, snapshot: Snapshot, modes: RequestModes, locks: QueueLocks, clock: Clock, *, auto_create: bool = True
    ) -> None:
        super().__init__(snapshot, auto_create=auto_create)
        self._modes = modes
        self._locks = locks
        self._clock = clock
        self.member_sources: list[MemberSource] = []

    def members_elsewhere(self, group: str) -> Iterator[Member]:
        """The members that `member_sources` know."""
        for source in self.member_sources:
            yield from source(group)

    def request_mode(self, topic: str, group: str) -> RequestMode:
        """How the group's members get the topic's messages: by pulls or pops."""
        return self._modes.get(topic, group)

    def set_request_mode(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode; see `RequestModes.put`."""
        self._modes.put(topic, group, mode)

    def lock_queues(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> list[LockedQueue]:
        """Lock what no other client of the group holds; those of the queues that the client holds now."""
        return self._locks.lock(group, client_id, queues, self._clock.monotonic_s())

    def unlock_queues(self, group: str, client_id: str, queues: Iterable[LockedQueue]) -> None:
        """Give up queues; those that the client does not hold stay as they are."""
        self._locks.unlock(group, client_id, queues)

    def release_queues(self, group: str, client_id: str) -> None:
        """Give up all that the client holds, as when it is gone."""
        self._locks.release(group, client_id)

    def is_ordered(self, group: str) -> bool:
        """Whether a client of the group holds a lock, as in a group that consumes in order."""
        return self._locks.is_ordered(group, self._clock.monotonic_s())
