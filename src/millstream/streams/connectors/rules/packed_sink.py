"""Writes packed hits: tasks leave packed records in a file, the driver sends them.

So each of the topic's queues has the records of a source queue in the order of their offsets, by which a reader knows
what it has seen. All records of a micro-batch are kept, whole, before the first one is sent: a repeated micro-batch
sends the very same ones, but for those that are there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from millstream.model.message import Message
from millstream.streams.plan.types import Schema
from millstream.streams.rules.packed.packer import HitsPacker, PackedColumns, PackedRecord
from millstream.streams.rules.packed.record import BatchEnd, RowsHead, pack_end
from millstream.streams.spark.rules.task_report import report_spool, total_of
from millstream.streams.spark.sinks.earlier import BatchNote, fingerprint, left_behind
from millstream.streams.spark.sinks.message_maker import ORIGIN
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.spark.sinks.spooled_rows import attempt_name, files_of, finish_file
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log
from millstream.streams.state.atomic_file import write_file
from millstream.streams.state.spool import Spool, SpoolFile

__all__ = ["PackedSink"]

_MESSAGES_PER_SEND = 1_000
"""Records handed to the client at once; it makes requests of its own size of them."""


class _Kept(msgspec.Struct, frozen=True):
    """All records of a micro-batch by queue of the topic, and how far event time had come in each source queue."""

    batch_id: int
    records: dict[str, list[bytes]]
    times_us: dict[str, int] = {}


_KEPT = msgspec.msgpack.Decoder(_Kept)


class PackedSink:
    """Sends hits to `topic`. `judged` is the directory of the job that judges them; set before the first micro-batch.

    The watermark that records tell is the least newest time of all source queues less `delay_us`.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        topic: str,
        columns: PackedColumns,
        nameserver: str,
        *,
        timeout_s: float,
        access: Access,
        delay_us: int = 0,
    ) -> None:
        self.name = name
        self.schema = schema
        self.topic = topic
        self.judged: Path | None = None
        self._columns = columns
        self._nameserver = nameserver
        self._timeout_s = timeout_s
        self._access = access
        self._delay_us = delay_us
        self._directory = Path()
        self._note = BatchNote(-1, {})
        self._origin = ""
        self._repeated = False
        self._times_before: dict[str, int] = {}

    def begin(self, attempt: Attempt) -> bool:
        """Note where the topic ends, unless an earlier attempt did. Raises NameRefused TOPIC_NOT_FOUND."""
        self._origin = attempt.job_id
        self._directory = attempt.notes / f"{attempt.number}-hits"
        file = self._directory / "note.json"
        note = BatchNote.read(file)
        self._repeated = note is not None and note.batch_id == attempt.batch_id
        if note is None or not self._repeated:
            log = self._log()
            try:
                ends = {queue: span.max_offset for queue, span in log.spans(self.topic).items()}
            finally:
                log.close()
            note = BatchNote(attempt.batch_id, ends)
            note.write(file)
        self._note = note
        before = self._read_kept()
        self._times_before = {} if before is None else before.times_us
        self._discard_tasks()
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer that leaves records in a file."""
        head = RowsHead(
            self._origin, task.batch_id, "", "", 0, 0, 0, 0, watermark_us=_least(self._times_before, self._delay_us)
        )
        return _Packing(HitsPacker(self._columns, sorted(self._note.ends), head), self._tasks.file(attempt_name(task)))

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Send the records that are not there yet. Raises what the cluster answers."""
        kept = self._read_kept() if self._repeated else None
        if kept is None or kept.batch_id != batch_id:
            kept = self._gather(batch_id, files_of(written))
            # No more durable than Spark's own note of which micro-batch it is.
            write_file(self._kept_file, msgspec.msgpack.encode(kept), durable=False)
        mark = {ORIGIN: f"{self._origin}-{batch_id}"}
        log = self._log()
        try:
            there = left_behind(log, self.topic, self._note, mark[ORIGIN]) if self._repeated else {}
            for queue, records in kept.records.items():
                messages = [Message(self.topic, text, None, (), None, mark) for text in records]
                missing = [message for message in messages if not there.get(fingerprint(message))]
                for start in range(0, len(missing), _MESSAGES_PER_SEND):
                    log.send(missing[start : start + _MESSAGES_PER_SEND], queue=queue)
        finally:
            log.close()
        self._discard_tasks()

    @property
    def _tasks(self) -> Spool[PackedRecord]:
        """A file for each attempt of a task."""
        return Spool(self._directory / "tasks", ".records", PackedRecord)

    @property
    def _kept_file(self) -> Path:
        return self._directory / "records"

    def _read_kept(self) -> _Kept | None:
        """The micro-batch that was kept last: this one where it is repeated, else the one before."""
        try:
            return _KEPT.decode(self._kept_file.read_bytes())
        except FileNotFoundError:
            return None

    def _gather(self, batch_id: int, files: Sequence[Path]) -> _Kept:
        """What the tasks left in the order of the source's offsets, and the end of the micro-batch in each queue."""
        queues = tuple(sorted(self._note.ends))
        records: dict[str, list[PackedRecord]] = {queue: [] for queue in queues}
        for file in files:
            for record in self._tasks.read(file):
                records[record.into].append(record)
        times_us = {} if self.judged is None else total_of(report_spool(self.judged).peek()).times_us
        all_times = {**self._times_before, **times_us}
        watermark_us = _least(all_times, self._delay_us)
        found: dict[str, list[bytes]] = {}
        for queue in queues:
            ordered = sorted(records[queue], key=lambda one: one.place)
            end = BatchEnd(self._origin, batch_id, queue, queues, times_us, watermark_us)
            found[queue] = [*(one.text for one in ordered), pack_end(end)]
        return _Kept(batch_id, found, all_times)

    def _discard_tasks(self) -> None:
        shutil.rmtree(self._tasks.directory, ignore_errors=True)

    def _log(self) -> TopicLog:
        return open_log(self._nameserver, timeout_s=self._timeout_s, access=self._access)


class _Packing:
    """Leaves the records of a task in a file, for they are sent when all tasks are done."""

    def __init__(self, packer: HitsPacker, file: SpoolFile[PackedRecord]) -> None:
        self._packer = packer
        self._file = file

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take hits."""
        self._leave(self._packer.add(rows))

    def finish(self) -> bytes:
        """Complete the file; the message that names it."""
        self._leave(self._packer.finish())
        return finish_file(self._file)

    def _leave(self, records: Iterable[PackedRecord]) -> None:
        for record in records:
            self._file.add(record)


def _least(times_us: Mapping[str, int], delay_us: int) -> int | None:
    return min(times_us.values()) - delay_us if times_us else None
