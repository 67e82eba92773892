"""The replicated state of controllers: replicas of each broker name, master, and sync state set. Pure.

A change carries the whole new value of one set and the revision that it was decided on, and applies only to that
revision: what was decided on an older state changes nothing, wherever and whenever it is applied. RocketMQ's events
say what to add, and count epochs when they are applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from millstream.model.errors import StoreError

__all__ = ["FIRST_ID", "MAX_SETS", "MAX_SET_REPLICAS", "Replica", "ReplicaSet", "ReplicaSets", "SetChange"]

FIRST_ID: Final = 1
"""The controller id of the first replica of a broker name; ids are never given twice."""

MAX_SETS: Final = 10_000
"""Broker names at most; it is a memory bound, not a goal."""

MAX_SET_REPLICAS: Final = 64
"""Replicas of one broker name at most."""

_VERSION: Final = 1


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """One broker process of a set. `address` is what others connect to, as `host:port`."""

    address: str
    check_code: str
    """What the replica chose when it took its id; it tells its repetition from another broker's wish."""
    is_learner: bool = False
    """Whether it copies the log alone: it is never in the set and never the master."""
    all_ack: bool | None = None
    """Whether it acknowledges only what every member of the set has; None where it did not say, as RocketMQ's brokers,
    which have no lease."""


class ReplicaSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """All replicas of one broker name, by controller id."""

    cluster: str
    name: str
    replicas: dict[int, Replica]
    next_id: int
    """No replica ever had this id or a higher one."""
    master: int | None = None
    master_epoch: int = 0
    """Grows with every election; 0 before the first one."""
    members: tuple[int, ...] = ()
    """The sync state set: who has all that the master acknowledged, sorted. A new master comes from here."""
    set_epoch: int = 0
    """Grows whenever the members change."""
    last_members: tuple[int, ...] = ()
    """The members before the last change of the set: if all present ones are gone, these know most."""
    revision: int = 0
    """Grows with every change, over all sets; a broker name that was forgotten does not get an old one again."""

    @property
    def master_address(self) -> str | None:
        """Where the master listens; None without one."""
        return None if self.master is None else self.replicas[self.master].address

    @property
    def addresses(self) -> dict[int, str]:
        """Where the replicas listen, by id."""
        return {number: replica.address for number, replica in sorted(self.replicas.items())}


class SetChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one entry of the controllers' log says about one broker name."""

    reason: str
    """What it was decided for, in words of the log: apply-id, register, alter, elect, clean."""
    name: str
    expected: int
    """The revision of the set that it replaces; 0 where there is none."""
    after: ReplicaSet | None = None
    """The set from then on, its revision aside; None: the broker name is forgotten."""

    def encode(self) -> bytes:
        """The entry's JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, entry: bytes) -> SetChange:
        """The change of such an entry. Raises STORE_FORMAT."""
        try:
            return msgspec.json.decode(entry, type=cls)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"An entry of the controller's log cannot be read: {error}.") from None


class _Document(msgspec.Struct):
    version: int
    revision: int
    sets: list[ReplicaSet]


class ReplicaSets:
    """All sets by broker name. Every controller that has applied the same entries has the same ones."""

    def __init__(self) -> None:
        self._sets: dict[str, ReplicaSet] = {}
        self._revision = 0

    def __iter__(self) -> Iterator[ReplicaSet]:
        return iter(self._sets.values())

    def __len__(self) -> int:
        return len(self._sets)

    def find(self, name: str) -> ReplicaSet | None:
        """The set of a broker name."""
        return self._sets.get(name)

    def apply(self, change: SetChange) -> bool:
        """Make the change; False, and nothing changes, where it does not follow from what is there."""
        before, after = self._sets.get(change.name), change.after
        if change.expected != (0 if before is None else before.revision):
            return False
        if after is None:
            if before is None:
                return False
            del self._sets[change.name]
            self._revision += 1
            return True
        if after.name != change.name or not _is_lawful(before, after):
            return False
        if before is None and len(self._sets) >= MAX_SETS:
            return False
        self._revision += 1
        self._sets[change.name] = replace(after, revision=self._revision)
        return True

    def encode(self) -> bytes:
        """All of it as one JSON document."""
        return msgspec.json.encode(_Document(_VERSION, self._revision, list(self._sets.values())))

    def restore(self, document: bytes) -> None:
        """Become what was encoded. Raises STORE_FORMAT, and stays as it was then."""
        try:
            read = msgspec.json.decode(document, type=_Document)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"The controller's state cannot be read: {error}.") from None
        if read.version != _VERSION:
            words = f"The controller's state is of version {read.version}, not {_VERSION}."
            raise StoreError("STORE_FORMAT", words)
        self._revision = read.revision
        self._sets = {one.name: one for one in read.sets}


def _is_lawful(before: ReplicaSet | None, after: ReplicaSet) -> bool:
    """Whether a set is whole in itself and may follow the former one, whoever decided it."""
    voters = {number for number, replica in after.replicas.items() if not replica.is_learner}
    is_whole = (
        FIRST_ID <= len(after.replicas) <= MAX_SET_REPLICAS
        and max(after.replicas) < after.next_id
        and after.members == tuple(sorted({*after.members}))
        and voters.issuperset(after.members)
        and (after.master is None or after.master in after.members)
    )
    if before is None:
        return is_whole and after.master is None and not after.members
    if after.next_id < before.next_id or after.master_epoch < before.master_epoch or after.set_epoch < before.set_epoch:
        return False
    is_same_master = after.master == before.master or after.master_epoch > before.master_epoch
    is_same_set = after.members == before.members or after.set_epoch > before.set_epoch
    return is_whole and is_same_master and is_same_set
