"""The replica's side of replication: builds fetches and applies responses. Sans-io."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.model.errors import NameRefused
from millstream.protocol.remoting.messages.replication import (
    NO_EPOCH,
    FetchAnswer,
    FetchOutcome,
    FetchRequest,
    decode_epochs,
)
from millstream.replication.epoch_list import EpochList, EpochStart
from millstream.replication.epoch_log import EpochLog
from millstream.replication.source import MAX_FETCH_BYTES

__all__ = ["WAIT_MS", "AppendRecords", "Follower", "NextStep", "ReplicaIdentity", "Step"]

WAIT_MS: Final = 500
"""Milliseconds that the master may keep a fetch waiting; also how often an idle master is heard."""


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Which replica of which broker this is; `broker_id` is the controller's."""

    cluster: str
    name: str
    broker_id: int


class NextStep(Enum):
    """What a replica does next."""

    FETCH = "fetch"
    """Ask again."""
    CUT = "cut"
    """Cut the log at `log_offset`, then ask again: the master's log went on otherwise."""
    BEGIN_ANEW = "begin anew"
    """Nothing of the log is of use: it starts over at `log_offset`, where the master's log does."""


@dataclass(frozen=True, slots=True)
class Step:
    """The next step; `log_offset` is for those that name one."""

    next: NextStep
    log_offset: int = 0


AppendRecords = Callable[[int, bytes, EpochStart | None], None]
"""Takes the log offset of records, the records, and the epoch that they were written in."""

_FETCH_AGAIN: Final = Step(NextStep.FETCH)


class Follower:
    """Copies the log of the master of one epoch. `append` puts records into the log, by default as they are."""

    def __init__(
        self, log: EpochLog, identity: ReplicaIdentity, epoch: int, append: AppendRecords | None = None
    ) -> None:
        self._log = log
        self._append = append or log.append
        self._identity = identity
        self.epoch = epoch
        self.master_end = 0
        """Where the master's log ended at its last answer."""
        self.master_start = 0
        """Where it began."""
        self.is_doubtful = False
        """Whether what the master sent last was damaged."""
        self.damaged_bytes: Callable[[], int] = lambda: 0
        """The bytes of the log that are damaged, for the master to know."""

    def fetch(self, wait_ms: int = WAIT_MS, *, is_leaving: bool = False) -> FetchRequest:
        """The next request; the last one where the replica `is_leaving`."""
        log, identity = self._log, self._identity
        last_epoch, last_epoch_start = log.epochs.starts[-1] if log.epochs.starts else (NO_EPOCH, NO_EPOCH)
        return FetchRequest(
            identity.cluster,
            identity.name,
            identity.broker_id,
            self.epoch,
            log.end,
            min(log.store.flushed_log_offset, log.end),
            log.store.confirmed_log_offset,
            last_epoch,
            last_epoch_start,
            log.store.options.segment_bytes,
            MAX_FETCH_BYTES,
            wait_ms,
            is_leaving,
            self.is_doubtful,
            self.damaged_bytes(),
        )

    def take(self, answer: FetchAnswer, body: bytes) -> Step:
        """Take an answer: records are in the log, and what is confirmed is shown, when this returns.

        Raises FENCED_MASTER_EPOCH for an answer of another epoch, which changes nothing, and what appending raises.
        """
        if answer.epoch != self.epoch:
            words = f"The answer is of the epoch {answer.epoch}, not {self.epoch}."
            raise NameRefused("FENCED_MASTER_EPOCH", words)
        self.master_end, self.master_start = answer.log_end, answer.log_start
        match answer.outcome:
            case FetchOutcome.RECORDS:
                self._take_records(answer, body)
                return _FETCH_AGAIN
            case FetchOutcome.DIVERGED:
                starts = [EpochStart(*start) for start in decode_epochs(body)]
                return self._find_cut(answer, EpochList.check(starts, answer.log_end))
            case _:
                return Step(NextStep.BEGIN_ANEW, answer.log_start)

    def _take_records(self, answer: FetchAnswer, body: bytes) -> None:
        if body:
            epoch = None
            if answer.records_epoch != NO_EPOCH:
                epoch = EpochStart(answer.records_epoch, answer.records_epoch_start)
            self._append(answer.log_offset, body, epoch)
        self._log.store.confirm(min(answer.confirmed, self._log.end))

    def _find_cut(self, answer: FetchAnswer, master: EpochList) -> Step:
        own = self._log.epochs
        same_until = own.divergence(self._log.end, master, answer.log_end)
        if same_until is None or same_until < max(self._log.start, answer.log_start):
            return Step(NextStep.BEGIN_ANEW, answer.log_start)
        if same_until == self._log.end and own.cut_suffix(same_until) != own:
            # Epochs in which nothing was written are in one list alone.
            self._log.forget_epochs(same_until)
            return _FETCH_AGAIN
        return Step(NextStep.CUT, same_until)
