"""The broker's consumer groups, kept in memory and saved whole at every change."""

from __future__ import annotations

from collections.abc import Callable

from millstream.broker.document import Document, SavedDocument
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig, check_group_name
from millstream.store.snapshot import Snapshot

__all__ = ["MAX_GROUPS", "MAX_GROUPS_ON_THE_FLY", "MAX_GROUP_ATTEMPTS", "SYSTEM_GROUP_PREFIX", "GroupRegistry"]

MAX_GROUPS = 10_000
"""Groups of one broker at most: every change writes all of them."""

MAX_GROUPS_ON_THE_FLY = 5_000
"""Groups beyond which none is added by its first use alone: there is room left for those that somebody creates."""

MAX_GROUP_ATTEMPTS = 1_000
"""Deliveries of one message that a group may ask for at most."""

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
_VERSION = 1


class _Document(Document):
    groups: list[GroupConfig]


class GroupRegistry:
    """The groups by name. Changes are on disk before the call returns.

    `auto_create` lets `ensure` add a group with default settings at its first use. `before_delete` is called with the
    name while the group is still there.
    """

    def __init__(self, snapshot: Snapshot, *, auto_create: bool = True) -> None:
        self._saved = SavedDocument(snapshot, _Document, noun="groups", version=_VERSION)
        self._auto_create = auto_create
        self._groups: dict[str, GroupConfig] = {}
        self.before_delete: list[Callable[[str], None]] = []

    def load(self) -> None:
        """Read the saved groups. Raises STORE_FORMAT where the file is of another format."""
        document = self._saved.load()
        if document is not None:
            self._groups = {group.name: group for group in document.groups}

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
        if self._auto_create:
            if len(self._groups) >= MAX_GROUPS_ON_THE_FLY:
                raise NameRefused(
                    "TOO_MANY_REQUESTS",
                    f"The broker has {len(self._groups)} groups; the group {name[:200]!r} is not added by its use.",
                    remedy="Create the group: millstream group create NAME.",
                )
            self.create(GroupConfig(name))
        return self.get(name)

    def all(self) -> list[GroupConfig]:
        """All groups, by name."""
        return [self._groups[name] for name in sorted(self._groups)]

    def create(self, group: GroupConfig) -> bool:
        """Add a group; True if it is new, False if it was there with equal settings.

        Raises ILLEGAL_GROUP (name, attempts not 1 to 1,000, no backoff step), GROUP_EXISTS (with other settings).
        """
        check_group_name(group.name)
        if group.name.startswith(SYSTEM_GROUP_PREFIX):
            raise NameRefused("ILLEGAL_GROUP", f"The group name {group.name!r} is the system's own.")
        if not 1 <= group.max_attempts <= MAX_GROUP_ATTEMPTS or not group.backoff_s or min(group.backoff_s) < 0:
            raise NameRefused(
                "ILLEGAL_GROUP",
                f"The group {group.name!r} asks for {group.max_attempts} attempts and backoff {group.backoff_s} s.",
                remedy=f"Ask for 1 to {MAX_GROUP_ATTEMPTS} attempts and at least one backoff step of 0 s or more.",
            )
        present = self._groups.get(group.name)
        if present is not None:
            if present == group:
                return False
            kind = "fifo" if present.fifo else "not fifo"
            raise NameRefused(
                "GROUP_EXISTS",
                f"The group {group.name!r} exists with other settings: {kind}, {present.max_attempts} attempts.",
            )
        if len(self._groups) >= MAX_GROUPS:
            raise NameRefused(
                "TOO_MANY_REQUESTS",
                f"The broker has {MAX_GROUPS} groups, which is its limit.",
                remedy="Delete a group.",
            )
        self._replace({**self._groups, group.name: group})
        return True

    def delete(self, name: str) -> None:
        """Remove a group and its offsets. Raises GROUP_NOT_FOUND."""
        self.get(name)
        for forget in self.before_delete:
            forget(name)
        self._replace({other: group for other, group in self._groups.items() if other != name})

    def _replace(self, groups: dict[str, GroupConfig]) -> None:
        """Save first: a group that could not be saved is not there, so that it does not vanish with a restart."""
        self._saved.save(_Document(version=_VERSION, groups=list(groups.values())))
        self._groups = groups
