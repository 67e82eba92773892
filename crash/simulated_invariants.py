"""What must hold in a simulated set at any time, and what its clients were promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from crash.raft_group import BrokenInvariant
from crash.simulated_clients import TOPIC, Receipt
from crash.simulated_cluster import BROKER_NAME, ReplicaMachine, SimulatedCluster
from millstream.controller.elections import LEASE_S
from millstream.protocol.record import decode_record
from millstream.store.message_store import MessageStore

__all__ = ["COMMIT_WINDOW_S", "SetInvariants"]

COMMIT_WINDOW_S: Final = 5.0
"""An offset that was committed so long before its master was lost is kept: the lease, a write, and delays."""

SLOW_S: Final = 1.0
"""With longer delays an offset that is committed needs longer to reach the replicas: a write, a fetch and its answer,
and a new connection where a session was over by its silence."""

_CHUNK_BYTES: Final = 1 << 20


@dataclass
class SetInvariants:
    """`look` is to be called after each event; both raise BrokenInvariant. `grants` is when leases were given."""

    cluster: SimulatedCluster
    grants: dict[tuple[str, int], float]
    receipts: list[Receipt] = field(default_factory=list)
    excused: int = 0
    """Acknowledged messages that were lost as the table of promises allows: with the power of all who had them."""
    epochs: dict[int, str] = field(default_factory=dict)
    """Which host became the master of an epoch."""
    losses_s: list[float] = field(default_factory=list)
    """When a master ended or another one began."""
    commits: list[tuple[int, float]] = field(default_factory=list)
    _bodies: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _image: bytearray = field(default_factory=bytearray)
    """What any replica ever showed as confirmed."""
    _checked: dict[tuple[str, int], int] = field(default_factory=dict)
    _forks: list[tuple[int, int]] = field(default_factory=list)
    """From which log offset on, and in which epoch, a replica led without what was excused: who has not followed it
    still shows that."""
    _routes: tuple[int, int] = (0, 0)
    """The nameserver's life, and the epoch of the master that it told of last."""

    def note_ack(self, receipt: Receipt) -> None:
        """A message was acknowledged: no other one ever was in its place."""
        # By a master that may have begun since the last look.
        self._excuse_losses()
        place = receipt.queue_id, receipt.queue_offset
        other = self._bodies.setdefault(place, receipt.body)
        if other != receipt.body:
            raise BrokenInvariant(f"two messages were acknowledged at {place}: {other[:20]!r}, {receipt.body[:20]!r}")
        self.receipts.append(receipt)

    def note_commit(self, offset: int, now_s: float) -> None:
        """An offset was committed."""
        self.commits.append((offset, now_s))

    def look(self) -> None:
        """Check all that holds at any time."""
        self._excuse_losses()
        leading = [replica for replica in self.cluster.replicas if replica.leads]
        for replica in sorted(leading, key=_epoch_of, reverse=True):
            self._check_master(replica)
            if replica.process is not None and replica.process.disk_fails:
                self.losses_s.append(self.cluster.loop.time())
        if self.cluster.network.slowest_s > SLOW_S:
            self.losses_s.append(self.cluster.loop.time())
        for replica in self.cluster.replicas:
            self._check_lease(replica)
            self._check_confirmed(replica)
        self._check_route()

    def check_end(self) -> None:
        """Check a healed and level set: all logs are one, with all that was acknowledged, and the epochs agree."""
        self._checked.clear()
        for replica in self.cluster.replicas:
            self._check_confirmed(replica)
            self._check_receipts(replica)
        lists = {replica.host: replica.replicated.log.epochs for replica in self.cluster.replicas if replica.replicated}
        if len({epochs.starts for epochs in lists.values()}) != 1:
            raise BrokenInvariant(f"the epochs differ: {lists}")

    def check_commit(self, offset: int | None) -> None:
        """Check the offset that the last master knows."""
        kept = [
            committed
            for committed, at_s in self.commits
            if not any(at_s - 1.0 < lost_s < at_s + COMMIT_WINDOW_S for lost_s in self.losses_s)
        ]
        if not self.excused and max(kept, default=0) > (offset or 0):
            raise BrokenInvariant(f"the offset {max(kept)} was committed long before a loss, and is {offset}")

    # inside

    def _check_master(self, replica: ReplicaMachine) -> None:
        epoch = _epoch_of(replica)
        host = self.epochs.get(epoch)
        if host is not None:
            if host != replica.host:
                raise BrokenInvariant(f"{host} and {replica.host} are both the master of epoch {epoch}")
            return
        is_latest = epoch > max(self.epochs, default=0)
        self.epochs[epoch] = replica.host
        self.losses_s.append(self.cluster.loop.time())
        if is_latest:
            self._check_receipts(replica)

    def _check_receipts(self, replica: ReplicaMachine) -> None:
        store = _store_of(replica)
        if store is None:
            return
        for receipt in self.receipts:
            entries = store.entries(TOPIC, receipt.queue_id, receipt.queue_offset, 1)
            found = decode_record(store.read(entries[0])) if entries else None
            if found is None or (found.queue_offset, found.body) != (receipt.queue_offset, receipt.body):
                words = f"{receipt.body[:20]!r} at {receipt.log_offset}, acknowledged at {receipt.acked_s:.2f} s"
                raise BrokenInvariant(f"{replica.host} in epoch {_epoch_of(replica)} lacks {words}")

    def _check_lease(self, replica: ReplicaMachine) -> None:
        replicated = replica.replicated
        if replicated is None or not replicated.holds_lease:
            return
        granted_s = self.grants.get((BROKER_NAME, replicated.identity.broker_id), float("-inf"))
        if self.cluster.loop.time() > granted_s + LEASE_S:
            raise BrokenInvariant(f"{replica.host} still holds the lease that it was given at {granted_s:.2f} s")

    def _check_confirmed(self, replica: ReplicaMachine) -> None:
        """What is confirmed is the same everywhere and for ever."""
        store = _store_of(replica)
        if store is None:
            return
        key = replica.host, replica.lives
        end = store.visible_log_offset
        if end > store.written_log_offset:
            raise BrokenInvariant(f"{replica.host} shows {end} of {store.written_log_offset} bytes")
        assert replica.replicated is not None
        known = {start.epoch for start in replica.replicated.log.epochs.starts}
        end = min([end, *(kept for kept, epoch in self._forks if epoch not in known)])
        at = min(self._checked.get(key, 0), end)
        while at < end:
            chunk = store.read_chunk(at, _CHUNK_BYTES, end)
            if not chunk.records:
                break
            self._compare(replica, chunk.log_offset, bytes(chunk.records))
            at = chunk.log_offset + len(chunk.records)
        self._checked[key] = end

    def _compare(self, replica: ReplicaMachine, log_offset: int, records: bytes) -> None:
        known = bytes(self._image[log_offset : log_offset + len(records)])
        if known != records[: len(known)]:
            at = log_offset + next(place for place, byte in enumerate(known) if byte != records[place])
            raise BrokenInvariant(f"{replica.host} shows other bytes at {at} than another one did")
        if len(known) < len(records):
            self._image.extend(bytes(max(log_offset - len(self._image), 0)))
            self._image[log_offset:] = records

    def _check_route(self) -> None:
        nameserver = self.cluster.nameserver
        if nameserver.process is None or nameserver.role is None:
            return
        version = nameserver.role.registry.data_version(BROKER_NAME, 0)
        if version is None:
            return
        life, epoch = self._routes
        if life == nameserver.lives and version.state_version < epoch:
            raise BrokenInvariant(f"the nameserver tells of epoch {version.state_version} after {epoch}")
        self._routes = nameserver.lives, version.state_version

    def _excuse_losses(self) -> None:
        for replica in self.cluster.replicas:
            self._excuse(replica)

    def _excuse(self, replica: ReplicaMachine) -> None:
        """A replica without the tail that its disk lost may lead only where all who had it are gone."""
        replicated, kept = replica.replicated, replica.lost_from
        if replicated is None or kept is None:
            return
        if replicated.port.source is not None:
            # The last record that is whole may end before what was kept.
            epoch, start = replicated.log.epochs.starts[-1]
            kept = min(kept, start)
            self._forks.append((kept, epoch))
            kept_receipts = [receipt for receipt in self.receipts if receipt.log_offset < kept]
            self.excused += len(self.receipts) - len(kept_receipts)
            self.receipts = kept_receipts
            self._bodies = {(one.queue_id, one.queue_offset): one.body for one in kept_receipts}
            del self._image[kept:]
            self._checked = {key: min(at, kept) for key, at in self._checked.items()}
            replica.lost_from = None
        elif replicated.store.confirmed_log_offset >= len(self._image):
            replica.lost_from = None


def _store_of(replica: ReplicaMachine) -> MessageStore | None:
    """Its store, while it is open."""
    replicated = replica.replicated
    if replicated is None or not hasattr(replicated, "store") or replicated.store._health.is_closed:
        return None
    return replicated.store


def _epoch_of(replica: ReplicaMachine) -> int:
    return replica.replicated.view.epoch if replica.replicated is not None else 0
