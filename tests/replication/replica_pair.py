"""Masters and replicas over real stores, without sockets: each exchange is a call."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millstream.model.message import OutgoingMessage
from millstream.protocol.record import decode_record
from millstream.replication.epoch_log import EpochLog
from millstream.replication.follower import Follower, NextStep, ReplicaIdentity, Step
from millstream.replication.source import LogSource
from millstream.replication.sync_set import AckPolicy, SyncSet
from millstream.store.cut.truncation import cut_store
from millstream.store.message_store import MessageStore, PendingRecord, StoreOptions

__all__ = ["CLUSTER", "NAME", "OPTIONS", "Member"]

CLUSTER, NAME = "cluster-a", "broker-a"
OPTIONS = StoreOptions(segment_bytes=4096, consume_queue_entries=10, replicated=True)


class Member:
    """One replica and its directory. Sessions are numbered by the test."""

    def __init__(self, directory: Path, broker_id: int, options: StoreOptions = OPTIONS) -> None:
        self.directory = directory
        self.broker_id = broker_id
        self.options = options
        self.source: LogSource | None = None
        self.follower: Follower | None = None
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.directory, self.options)
        self.log = EpochLog(self.store, self.directory)

    def close(self) -> None:
        self.store.close()

    def lead(self, epoch: int, members: set[int], *, set_epoch: int = 1, policy: AckPolicy | None = None) -> LogSource:
        """Become the master of an epoch."""
        start = self.log.begin_epoch(epoch, self.broker_id)
        sync_set = SyncSet(
            self.broker_id,
            epoch,
            members,
            set_epoch,
            policy=policy or AckPolicy(),
            confirmed=self.store.confirmed_log_offset,
            epoch_start=start,
            now_s=0.0,
        )
        self.follower, self.source = None, LogSource(self.log, sync_set, CLUSTER, NAME)
        self.source.note_own()
        return self.source

    def follow(self, epoch: int) -> Follower:
        """Become a replica in an epoch."""
        self.source = None
        self.follower = Follower(self.log, ReplicaIdentity(CLUSTER, NAME, self.broker_id), epoch)
        return self.follower

    def exchange(self, master: Member, session: int, now_s: float = 0.0) -> Step | None:
        """One fetch; None where the master has nothing to send."""
        assert self.follower is not None
        assert master.source is not None
        fetched, _ = master.source.take(session, self.follower.fetch(), now_s)
        return None if fetched is None else self.follower.take(fetched.fields, bytes(fetched.body))

    def catch_up(self, master: Member, session: int, now_s: float = 0.0) -> None:
        """Fetch until the master has nothing more, cutting the log where that is to be."""
        assert self.follower is not None
        while (step := self.exchange(master, session, now_s)) is not None:
            if step.next is NextStep.CUT:
                self.cut(step.log_offset)
            assert step.next is not NextStep.BEGIN_ANEW

    def cut(self, log_offset: int) -> None:
        assert self.follower is not None
        epoch = self.follower.epoch
        self.close()
        cut_store(self.directory, log_offset, self.options.segment_bytes)
        self.open()
        self.follow(epoch)

    def put(self, *bodies: bytes, topic: str = "orders") -> int:
        """Write as the master; the log's end then."""
        for body in bodies:
            self.store.put([PendingRecord(OutgoingMessage(topic, body, {}), 0)])
        if self.source is not None:
            self.source.note_own()
        return self.store.written_log_offset

    def shown(self, topic: str = "orders") -> list[bytes]:
        """The bodies that readers see."""
        entries = self.store.entries(topic, 0, self.store.min_offset(topic, 0), 1_000_000)
        return [decode_record(self.store.read(entry)).body for entry in entries]

    def with_options(self, **changes: int) -> None:
        """Start again with other settings of the store."""
        self.close()
        self.options = replace(self.options, **changes)
        self.open()
