"""A broker's report about itself: the body of request 9131, which is ours."""

from __future__ import annotations

import msgspec

from millstream.protocol.remoting.bodies import CamelBody

__all__ = ["BrokerReport", "ColdReport", "GroupBacklog", "ReplicaProgress", "SetReport"]


class GroupBacklog(CamelBody):
    """What one group has still to consume of one topic; both are numbers of messages."""

    group: str
    topic: str
    ready: int = 0
    in_flight: int = 0


class ReplicaProgress(CamelBody):
    """How far one replica has the log of its master."""

    broker_id: int
    address: str | None
    """Where its connection comes from; None while it has none."""
    in_set: bool
    behind_bytes: int | None
    """None while it has no connection: how far its log goes is not known then."""
    damaged_bytes: int = 0
    """Of its log, not yet fetched again from another replica."""


class SetReport(CamelBody):
    """The set of a broker with replicas, as its master sees it. Offsets are bytes of the log, ids the controllers'."""

    broker_id: int
    epoch: int
    set_epoch: int
    members: list[int]
    """Who has everything that was acknowledged; the master is one of them."""
    replicas: list[ReplicaProgress]
    """Members and others that fetch, the master left out."""
    takes_writes: bool
    all_in_set: bool
    in_sync_replicas: int
    min_in_sync: int
    log_end: int
    confirmed: int
    """Up to where the log counts."""
    lease_left_ms: int
    """For how long the controllers let it go on as the master."""
    controllers: list[str]
    """`host:port` of those that it knows."""
    damaged_bytes: int = 0
    """Of the master's log, not yet fetched again from a replica."""


class ColdReport(CamelBody):
    """What of a broker lies in an object store."""

    objects: int
    bytes: int
    behind_bytes: int
    """Bytes of the log that did not go there yet."""
    removed_objects: int = 0
    """Objects whose time is over and that are to be deleted."""
    damaged: int = 0
    """Reads of objects that failed their checksums."""
    last_error: str = ""
    """What the object store last failed with; blank once it did what was asked."""
    probe_ms: float | None = None
    """How long a trial of the store took, where that was asked for and it succeeded."""
    keeps_what_is_there: bool = True
    """Whether the store refuses to replace an object where it is told so; True where that was not tried."""


class BrokerReport(CamelBody):
    """One look. Times are milliseconds since 1970; what is not known is None."""

    name: str
    cluster: str
    address: str
    version: str
    now_ms: int
    is_drained: bool = False
    topics: int = 0
    groups: int = 0
    log_bytes: int = 0
    disk_bytes: int = 0
    disk_free_bytes: int = 0
    is_disk_full: bool = False
    failure: str | None = None
    sync_flush: bool = False
    backlog: list[GroupBacklog] = msgspec.field(default_factory=list)
    """The largest ones."""
    waiting_messages: int = 0
    """Of all groups and topics."""
    uncounted_pairs: int = 0
    """Pairs of group and topic that were not looked at, because there are too many."""
    unread_topics: list[str] = msgspec.field(default_factory=list)
    """Topics with messages in which no group has a position; the first ones."""
    delayed_messages: int = 0
    open_transactions: int = 0
    readers: dict[str, list[str]] | None = None
    """Topic -> the groups that have a position in it, where that was asked for."""
    sync_ms: float | None = None
    """How long a small write and its sync took, where that was asked for."""
    descriptors_in_use: int | None = None
    """Descriptors that the broker's process has open."""
    descriptor_limit: int | None = None
    """How many it may have open."""
    replica_set: SetReport | None = None
    """Of a broker that has replicas."""
    cold: ColdReport | None = None
    """Of a broker that has an object store."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits on this broker for a group, a time or a producer's word."""
        return not (self.waiting_messages or self.uncounted_pairs or self.delayed_messages or self.open_transactions)
