"""Leadership among job servers: the leader holds the lock of the job topic, and alone records job states."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from millstream.client.changelog_reader import ChangelogReader
from millstream.job_server.errors import NotLeading, unknown_job
from millstream.job_server.job_book import SharedJobBook
from millstream.job_server.job_record import LEADER_KEY, JobRecord, LeaderRecord, encode_record
from millstream.job_server.job_topic import JobTopic
from millstream.job_server.lease import RENEW_S, TAKEOVER_S, Lease
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.protocol.changelog import Change

__all__ = ["Leadership"]

_log = logging.getLogger(__name__)

_READ_WAIT_MS: Final = 1_000
_RETRY_S: Final = 1.0
_CLAIM_S: Final = 15.0


class Leadership:
    """The jobs as all servers see them, and whether this one leads. Calls come from one event loop.

    `server` names this server for ever, `url` is where others find it. `on_change` hears that jobs have changed, or who
    leads.
    """

    def __init__(self, nameserver: str, server: str, url: str, clock: Clock, on_change: Callable[[], None]) -> None:
        self.book = SharedJobBook()
        self.server = server
        self.url = url
        self.starts_after_s = 0.0
        """Before which monotonic time no job may be started: drivers of the server before this one may still end."""

        self._clock = clock
        self._on_change = on_change
        self._reading, self._writing, self._locking = (JobTopic(nameserver) for _ in range(3))
        self._lease = Lease()
        self._epoch: int | None = None
        self._dirty: dict[str, None] = {}
        self._wake_writer = asyncio.Event()
        self._write_lock = asyncio.Lock()
        self._applied = asyncio.Condition()
        self._begin_anew = False
        self._has_read_all = False
        """Whether the book has all that was there; before that its epoch may be an old one."""

        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_leading(self) -> bool:
        """Whether this server may run jobs and change them, as of now."""
        return self._epoch is not None and self._lease.is_held(self._clock.monotonic_s())

    @property
    def leader_url(self) -> str:
        """Where the other server is that leads, as far as the topic tells; blank where none is known."""
        leader = self.book.leader
        return "" if leader is None or leader.released or leader.server == self.server else leader.url

    def start(self) -> None:
        """Follow the topic, and lead when it can be had."""
        self._tasks = [
            asyncio.create_task(self._follow(), name="jobs-follow"),
            asyncio.create_task(self._renew(), name="jobs-lease"),
            asyncio.create_task(self._flush(), name="jobs-write"),
        ]

    async def close(self) -> None:
        """Give the jobs back; all drivers of this server have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.is_leading and self._epoch is not None:
            try:
                await self._write_dirty()
                released = LeaderRecord(epoch=self._epoch, server=self.server, url=self.url, released=True)
                await asyncio.to_thread(self._writing.write, LEADER_KEY, encode_record(released))
                await asyncio.to_thread(self._locking.unlock, self.server)
            except MillstreamError as error:
                _log.warning("The jobs cannot be given back; another server has to wait for the lock: %s", error)
        for topic in (self._reading, self._writing, self._locking):
            topic.close()

    async def add(self, make: Callable[[], JobRecord]) -> JobRecord:
        """Keep the new job that `make` gives, which raises to refuse; the record as it is kept.

        Raises NotLeading, and what writing raises: it is not kept then.
        """
        async with self._write_lock:
            record = make()
            over = self.book.oldest_over()
            if over is not None:
                await self._write(over.name, b"")
                self.book.jobs.pop(over.name, None)
            return await self._keep(record)

    async def change(self, name: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """Keep what `change` makes of a job, which raises to refuse. Raises JOB_NOT_FOUND, NotLeading, as `add`."""
        async with self._write_lock:
            record = self.book.jobs.get(name)
            if record is None:
                raise unknown_job(name, self.book.jobs)
            kept = await self._keep(change(record))
            present = self.book.jobs[name]
            if present is not kept:
                # Something was noted meanwhile.
                self.note(change(present))
            return self.book.jobs[name]

    def note(self, record: JobRecord) -> None:
        """Keep what became of a job; it is written in a moment, again and again until that is done."""
        if self._epoch is None:
            return
        self.book.put(_of_epoch(record, self._epoch))
        self._dirty[record.name] = None
        self._wake_writer.set()

    def require(self) -> None:
        """Raise NotLeading unless this server leads."""
        if not self.is_leading:
            raise NotLeading(self.leader_url)

    # inside

    async def _keep(self, record: JobRecord) -> JobRecord:
        self.require()
        assert self._epoch is not None
        record = _of_epoch(record, self._epoch)
        before = self.book.jobs.get(record.name)
        await self._write(record.name, encode_record(record))
        if self.book.jobs.get(record.name) is before:
            self.book.put(record)
        self._on_change()
        return record

    async def _write(self, key: str, body: bytes) -> None:
        self.require()
        await asyncio.to_thread(self._writing.write, key, body)

    async def _flush(self) -> None:
        while True:
            await self._wake_writer.wait()
            self._wake_writer.clear()
            try:
                await self._write_dirty()
            except MillstreamError as error:
                if self._epoch is not None:
                    _log.warning("What became of jobs cannot be written yet: %s", error)
                    self._wake_writer.set()
                await asyncio.sleep(_RETRY_S)

    async def _write_dirty(self) -> None:
        async with self._write_lock:
            while self._dirty:
                key = next(iter(self._dirty))
                record = self.book.leader if key == LEADER_KEY else self.book.jobs.get(key)
                if record is not None and self._epoch is not None:
                    told = _of_epoch(record, self._epoch) if isinstance(record, JobRecord) else record
                    await self._write(key, encode_record(told))
                if record is (self.book.leader if key == LEADER_KEY else self.book.jobs.get(key)):
                    self._dirty.pop(key, None)

    async def _follow(self) -> None:
        reader: ChangelogReader | None = None
        while True:
            try:
                if reader is None or (self._begin_anew and self._epoch is None):
                    reader = await asyncio.to_thread(self._reading.reader)
                    self.book, self._begin_anew, self._has_read_all = SharedJobBook(), False, False
                changes = await asyncio.to_thread(reader.read, wait_ms=_READ_WAIT_MS)
            except MillstreamError as error:
                _log.warning("The topic of jobs cannot be read: %s", error)
                self._begin_anew = self._begin_anew or error.name == "ILLEGAL_OFFSET"
                await asyncio.sleep(_RETRY_S)
                continue
            self._has_read_all = self._has_read_all or not changes
            if changes:
                async with self._applied:
                    for change in changes:
                        self._apply(change)
                    self._applied.notify_all()
                self._on_change()

    def _apply(self, change: Change) -> None:
        key, body = change.key.decode(errors="replace"), None if change.value is None else bytes(change.value)
        if self._epoch is None:
            self.book.apply(key, body)
            return
        # While it leads, what it wrote itself is older than what it knows.
        seen = SharedJobBook()
        seen.leader = self.book.leader
        seen.apply(key, body)
        if key == LEADER_KEY:
            if seen.leader != self.book.leader and seen.leader is not None and seen.leader.epoch > self._epoch:
                self._step_down(f"the server {seen.leader.server} has taken over")
                self.book.leader = seen.leader
            elif key in seen.spoiled:
                self._dirty[key] = None
                self._wake_writer.set()
        elif key in seen.spoiled and key in self.book.jobs:
            self._dirty[key] = None
            self._wake_writer.set()

    async def _renew(self) -> None:
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                granted = await asyncio.to_thread(self._locking.lock, self.server)
                if granted:
                    self._lease.grant(asked_s)
                    if self._epoch is None and self._has_read_all:
                        await self._claim()
                else:
                    self._lease.lose()
            except MillstreamError as error:
                _log.warning("The lock of the topic of jobs cannot be renewed: %s", error)
            if self._epoch is not None and not self.is_leading:
                self._step_down("its lock has expired, or another server has it")
            await asyncio.sleep(max(0.0, asked_s + RENEW_S - self._clock.monotonic_s()))

    async def _claim(self) -> None:
        """Write an epoch of our own, and lead once all that was written before it has been read."""
        before, epoch = self.book.leader, self.book.epoch + 1
        record = LeaderRecord(epoch=epoch, server=self.server, url=self.url)
        await asyncio.to_thread(self._writing.write, LEADER_KEY, encode_record(record))
        async with self._applied:
            try:
                async with asyncio.timeout(_CLAIM_S):
                    await self._applied.wait_for(lambda: self.book.epoch >= epoch)
            except TimeoutError:
                return
        if self.book.leader != record or not self._lease.is_held(self._clock.monotonic_s()):
            return
        is_quiet = before is None or before.released or before.server == self.server
        self.starts_after_s = self._clock.monotonic_s() + (0.0 if is_quiet else TAKEOVER_S)
        self._epoch = epoch
        self._dirty.update(dict.fromkeys(self.book.spoiled & self.book.jobs.keys()))
        self._wake_writer.set()
        _log.info("This server leads, with epoch %d.", epoch)
        self._on_change()

    def _step_down(self, why: str) -> None:
        _log.warning("This server leads no more: %s.", why)
        self._epoch = None
        self._lease.lose()
        self._dirty.clear()
        self._begin_anew = True
        self._on_change()


def _of_epoch(record: JobRecord, epoch: int) -> JobRecord:
    if record.epoch == epoch:
        return record
    return msgspec.structs.replace(record, epoch=epoch)
