"""The master's side of replication: answers fetches of replicas. Sans-io: fetches and times in, answers out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import NameRefused
from millstream.protocol.remoting.messages.replication import (
    NO_EPOCH,
    FetchAnswer,
    FetchOutcome,
    FetchRequest,
    encode_epochs,
)
from millstream.replication.epoch_list import EpochStart
from millstream.replication.epoch_log import EpochLog
from millstream.replication.sync_set import SyncSet

__all__ = ["MAX_FETCH_BYTES", "Fetched", "LogSource"]

MAX_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records in one answer at most, but for a larger single record."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer. `body` is a slice of the log where it holds records."""

    fields: FetchAnswer
    body: bytes | memoryview = b""


@dataclass(slots=True)
class _Sent:
    """Up to where one session was sent the log; None while its next fetch is to say what it has."""

    end: int | None


class LogSource:
    """One master in one epoch. A session is a connection of a replica: a number that the caller gives once.

    `may_confirm` says whether more may count now; what waits for that counts with the next note or fetch.
    """

    def __init__(
        self,
        log: EpochLog,
        sync_set: SyncSet,
        cluster: str,
        name: str,
        *,
        may_confirm: Callable[[], bool] = lambda: True,
    ) -> None:
        self.sync_set = sync_set
        self._log = log
        self._cluster = cluster
        self._name = name
        self._may_confirm = may_confirm
        self._sessions: dict[int, _Sent] = {}

    def note_own(self) -> None:
        """Note what the master's own log has, and show readers what all have. To be called after each write and
        flush."""
        store = self._log.store
        self.sync_set.note_own(store.written_log_offset, store.flushed_log_offset)
        self._confirm()

    def take(self, session: int, fetch: FetchRequest, now_s: float) -> tuple[Fetched | None, int | None]:
        """The answer to a new fetch, None while there is nothing to send; and a session that this one replaces.

        Raises FENCED_MASTER_EPOCH and REPLICA_REFUSED, and nothing of the fetch counts then; and what reading raises.
        """
        self._check(fetch)
        replaced = None
        known = self._sessions.get(session)
        outcome = self._judge(fetch)
        if known is None:
            replaced = self.sync_set.open_session(fetch.broker_id, session, now_s)
            known = self._sessions[session] = _Sent(None)
        if outcome is FetchOutcome.RECORDS and known.end is not None and fetch.log_offset > known.end:
            words = f"Replica {fetch.broker_id} claims the log up to {fetch.log_offset}; it was sent up to {known.end}."
            raise NameRefused("REPLICA_REFUSED", words)
        if outcome is not FetchOutcome.RECORDS:
            known.end = None
            return self._refuse(outcome), replaced
        known.end = max(known.end or 0, fetch.log_offset)
        flushed = min(fetch.flushed, fetch.log_offset)
        self.sync_set.acknowledge(fetch.broker_id, session, fetch.log_offset, flushed, now_s)
        self._confirm()
        if fetch.is_leaving:
            self.sync_set.note_leaving(fetch.broker_id, session)
        return self.answer(session, fetch), replaced

    def answer(self, session: int, fetch: FetchRequest, *, is_due: bool = False) -> Fetched | None:
        """What a fetch that was taken gets now; None while there is nothing to send, unless it `is_due`."""
        if fetch.is_leaving and not is_due:
            # What it would be sent it has no time for; it waits to be out of the set.
            return None
        found = self._log.read(fetch.log_offset, max(1, min(fetch.max_bytes, MAX_FETCH_BYTES)))
        chunk, epoch = found.chunk, found.epoch
        if not chunk.records and not is_due:
            return None
        if chunk.records and session in self._sessions:
            sent = self._sessions[session]
            sent.end = max(sent.end or 0, chunk.end)
        log_offset = chunk.log_offset if chunk.records else fetch.log_offset
        return Fetched(self._fields(FetchOutcome.RECORDS, log_offset, epoch), chunk.records)

    def owes_confirmation(self, fetch: FetchRequest) -> bool:
        """Whether more is confirmed than the replica knows, of what it has."""
        return min(self._log.store.confirmed_log_offset, fetch.log_offset) > fetch.confirmed

    def close_session(self, session: int, broker_id: int, now_s: float) -> None:
        """Note that the connection is gone."""
        if self._sessions.pop(session, None) is not None:
            self.sync_set.close_session(broker_id, session, now_s)

    def _confirm(self) -> None:
        if self._may_confirm():
            self._log.store.confirm(self.sync_set.confirmed)

    def _check(self, fetch: FetchRequest) -> None:
        if (fetch.cluster, fetch.name) != (self._cluster, self._name):
            words = f"This is {self._name} of {self._cluster}, not {fetch.name[:80]} of {fetch.cluster[:80]}."
            raise NameRefused("REPLICA_REFUSED", words, remedy="Correct the replica's name or cluster.")
        if fetch.epoch != self.sync_set.epoch:
            words = f"The master's epoch is {self.sync_set.epoch}, not {fetch.epoch}."
            raise NameRefused("FENCED_MASTER_EPOCH", words)
        if fetch.broker_id == self.sync_set.broker_id:
            words = f"Replica {fetch.broker_id} is the master itself."
            raise NameRefused("REPLICA_REFUSED", words, remedy="Two brokers have one identity: stop one of them.")
        segment_bytes = self._log.store.options.segment_bytes
        if fetch.segment_bytes != segment_bytes:
            words = f"The replica's log has files of {fetch.segment_bytes} bytes, the master's of {segment_bytes}."
            raise NameRefused("REPLICA_REFUSED", words, remedy="Give all replicas the same settings of the store.")

    def _judge(self, fetch: FetchRequest) -> FetchOutcome:
        log, epochs = self._log, self._log.epochs
        if fetch.last_epoch == NO_EPOCH:
            # Of a log without epochs nothing is known; an empty one follows any, also one that begins with this log.
            is_new = fetch.log_offset == log.start == epochs.starts[0].log_offset if epochs.starts else False
            is_same = fetch.log_offset == 0 or is_new
        else:
            last = EpochStart(fetch.last_epoch, fetch.last_epoch_start)
            is_same = epochs.holds(last) and fetch.log_offset <= epochs.end_of(last.epoch, log.end)
        if not is_same:
            return FetchOutcome.DIVERGED
        return FetchOutcome.RECORDS if log.start <= fetch.log_offset <= log.end else FetchOutcome.OUT_OF_RANGE

    def _refuse(self, outcome: FetchOutcome) -> Fetched:
        body = encode_epochs(self._log.epochs.starts) if outcome is FetchOutcome.DIVERGED else b""
        return Fetched(self._fields(outcome, self._log.start, None), body)

    def _fields(self, outcome: FetchOutcome, log_offset: int, epoch: EpochStart | None) -> FetchAnswer:
        records_epoch, start = epoch or (NO_EPOCH, NO_EPOCH)
        return FetchAnswer(
            outcome,
            self.sync_set.epoch,
            log_offset,
            records_epoch,
            start,
            self._log.store.confirmed_log_offset,
            self._log.start,
            self._log.end,
        )
