"""The broker's consumer groups, kept in memory; each change is written to the state log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import NameRefused, StoreError
from millstream.model.group import GroupConfig, check_group, is_tool_group
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_GROUPS", "MAX_GROUPS_ON_THE_FLY", "GroupRegistry"]

MAX_GROUPS = 10_000
"""Groups of one broker at most: all of them are in one document."""

MAX_GROUPS_ON_THE_FLY = 5_000
"""Groups beyond which none is added by its first use alone: there is room left for those that somebody creates."""

_VERSION = 1

_log = logging.getLogger(__name__)


class _Document(Document):
    groups: list[GroupConfig]


class GroupRegistry:
    """The groups by name. Changes are on disk before the call returns, but for a group that comes into being by its use
    while the disk is full: reading needs no room, so it is in memory until `save_unsaved` finds some.

    `auto_create` lets `ensure` add a group with default settings at its first use. `before_delete` is called with the
    name while the group is still there, `on_change` with that of a group that is new or gone.

    The groups of tools, which look at messages and keep no position, are not among them.
    """

    def __init__(self, snapshot: Snapshot, *, auto_create: bool = True) -> None:
        saved = SavedDocument(snapshot, _Document, noun="groups", version=_VERSION)
        self.table = StateTable("group", saved, GroupConfig, self)
        """Its saved form."""
        self.auto_create = auto_create
        self._groups: dict[str, GroupConfig] = {}
        self._unwritten: set[str] = set()
        self.before_delete: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[str], None]] = []

    def make_document(self) -> _Document:
        """All groups."""
        return _Document(version=_VERSION, groups=list(self._groups.values()))

    def load_document(self, document: _Document) -> None:
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
