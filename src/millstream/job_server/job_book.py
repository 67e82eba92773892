"""The jobs by the topic's records: the newest record of each name, and the leader. Pure."""

from __future__ import annotations

import logging
from typing import Final

from millstream.job_server.job_record import LEADER_KEY, JobRecord, LeaderRecord, decode_job, decode_leader

__all__ = ["MAX_JOBS", "SharedJobBook"]

_log = logging.getLogger(__name__)

MAX_JOBS: Final = 2_000
"""Jobs that are kept at most. Over it the job that is over for longest is forgotten, or a new one is refused."""


class SharedJobBook:
    """Takes the messages of the topic in their order. A record of an older epoch than the newest seen counts nothing.

    `spoiled` are the keys under which the topic has something last that does not count: a server that had lost its
    lease wrote it. Compaction keeps the last message alone, so the leader writes the right one again.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.leader: LeaderRecord | None = None
        self.spoiled: set[str] = set()

    @property
    def epoch(self) -> int:
        """The newest epoch seen; 0 before the first leader."""
        return 0 if self.leader is None else self.leader.epoch

    def apply(self, key: str, body: bytes | None) -> None:
        """Take one message; None deletes the key. What cannot be read is left alone, with a warning."""
        try:
            if key == LEADER_KEY:
                self._apply_leader(body)
            elif body is None:
                self._forget(key)
            else:
                self._apply_job(key, decode_job(body))
        except ValueError as error:
            _log.warning("The record %r of the topic of jobs is left alone: %s.", key[:100], error)

    def put(self, record: JobRecord) -> None:
        """Take a record of this server's own, which leads."""
        self.jobs[record.name] = record

    @property
    def is_full(self) -> bool:
        """Whether no job can be added, as none is over that could be forgotten."""
        return len(self.jobs) >= MAX_JOBS and self.oldest_over() is None

    def oldest_over(self) -> JobRecord | None:
        """The job that is over for longest, where there are so many that none can be added."""
        if len(self.jobs) < MAX_JOBS:
            return None
        over = [record for record in self.jobs.values() if record.is_over]
        return min(over, key=lambda record: record.changed_at_ms, default=None)

    def _apply_leader(self, body: bytes | None) -> None:
        found = None if body is None else decode_leader(body)
        if found is None or not self._leads_on(found):
            self.spoiled.add(LEADER_KEY)
            return
        self.leader = found
        self.spoiled.discard(LEADER_KEY)

    def _leads_on(self, found: LeaderRecord) -> bool:
        """Whether the record counts: of two servers that took the same epoch, the first one has it."""
        if self.leader is None or found.epoch > self.leader.epoch:
            return True
        return found.epoch == self.leader.epoch and found.server == self.leader.server

    def _apply_job(self, key: str, record: JobRecord) -> None:
        # Compaction keeps the order: what stands before the leader's record was written before that server led.
        if record.epoch < self.epoch:
            self.spoiled.add(key)
            return
        self.jobs[key] = record
        self.spoiled.discard(key)

    def _forget(self, key: str) -> None:
        known = self.jobs.get(key)
        if known is not None and not known.is_over:
            self.spoiled.add(key)
            return
        self.jobs.pop(key, None)
