"""One Spark query: its sources, its outputs, and the end of each micro-batch."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from millstream.streams.connectors.print.sink import PrintSink
from millstream.streams.connectors.rules.packed_sink import PackedSink
from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint
from millstream.streams.jobs.outputs import Output
from millstream.streams.jobs.partition_commits import PartitionCommits
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.restarts import Restarts, first_cause, may_pass
from millstream.streams.jobs.side_outputs import SideOutputs
from millstream.streams.jobs.tally import Tally
from millstream.streams.spark.runtime.arrow_batches import start_with_batches
from millstream.streams.spark.sinks.router import WriteStage
from millstream.streams.spark.source.position import Position

__all__ = ["PAUSE_WAIT_S", "BatchPipeline", "LatePipeline", "PausingPipeline", "Pipeline", "StreamPipeline"]

_log = logging.getLogger(__name__)


class Pipeline(Protocol):
    """A running query."""

    def progress(self) -> JobProgress:
        """The counts now."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        ...

    def failure(self) -> JobError | None:
        """Why it failed; None while it runs or if it did not."""
        ...

    def stop(self) -> None:
        """End it; returns when it has ended."""
        ...


@runtime_checkable
class LatePipeline(Pipeline, Protocol):
    """One that starts later."""

    def find_pipelines(self) -> Sequence[Pipeline]:
        """The pipelines that it has become; none before its start."""
        ...


@runtime_checkable
class PausingPipeline(Pipeline, Protocol):
    """One of which a savepoint can be written while it runs."""

    def between_batches(self) -> AbstractContextManager[None]:
        """While this lasts no micro-batch runs; one under way is over before. Raises JobError SAVEPOINT_REFUSED."""
        ...


class _Delivery:
    """The end of a micro-batch: rows to the sinks, side outputs to their topics, counts to the tally."""

    def __init__(
        self, outputs: Sequence[Output], checkpoint: Checkpoint, side: SideOutputs, partitions: PartitionCommits
    ) -> None:
        self._sinks = [output.sink for output in outputs]
        self.partitions = partitions
        self._stage = WriteStage(
            [*self._sinks, *partitions.times],
            job_id=checkpoint.job_id,
            notes=checkpoint.sinks,
            told_by={number: output.told_by for number, output in enumerate(outputs) if output.told_by is not None},
            before_writing=self._before_writing,
        )
        self._side = side
        self._checkpoint = checkpoint
        self.tally = Tally(checkpoint.positions())
        self.tally.notice(side.notices)
        checkpoint.clear_scratch()

    def run(self, batch: DataFrame, batch_id: int, ends: Callable[[], Mapping[str, Position]]) -> None:
        """Deliver the micro-batch that ends at `ends()`, by source."""
        for model in self._side.models:
            model.begin(batch_id)
        counts = self._stage.deliver(batch, batch_id)
        self.partitions.after(batch_id)
        malformed = 0
        for dead_letters in self._side.dead_letters:
            refusals = dead_letters.deliver()
            malformed += refusals.count
            self.tally.note_refusal(dead_letters.table, refusals.count, refusals.reason)
        for detours in self._side.detours:
            self.tally.note_detours(detours.table, *detours.take())
        late = self._side.late.deliver()
        self.tally.saw_times(*self._side.take_event_times())
        self.tally.saw_ends(self._side.take_open_ends())
        failed = self._side.calls.deliver()
        self._checkpoint.clear_scratch()
        rows_out: Counter[str] = Counter()
        rows_between: Counter[str] = Counter()
        rows_by: defaultdict[str, Counter[str]] = defaultdict(Counter)
        # Behind those of the outputs are the counts of event times.
        for sink, count in zip(self._sinks, counts, strict=False):
            (rows_between if isinstance(sink, PackedSink) else rows_out)[sink.name] += count.rows
            if count.by:
                rows_by[sink.name].update(count.by)
        hits: Counter[str] = Counter()
        for guard in self._side.guards:
            hits.update(guard.take_delivered_hits())
            self.tally.saw_times(None, guard.times_us())
        self.tally.note_delivery(rows_out, malformed, late, hits, failed, rows_between, rows_by)
        self._side.groups.tell(ends())
        if self._checkpoint.mirror is not None:
            self._checkpoint.mirror.after_writing()

    def _before_writing(self) -> None:
        if self._checkpoint.mirror is not None:
            self._checkpoint.mirror.before_writing()

    def commit_groups(self) -> None:
        """Commit what an earlier process has delivered and may not have told."""
        if self._checkpoint.has_run:
            self._side.groups.tell(self._checkpoint.delivered_ends())

    def began(self) -> None:
        """Micro-batches come from here on."""
        self._side.tables.begin()

    def note_end(self) -> None:
        """Nothing more is delivered."""
        self._side.tables.stop()
        for guard in self._side.guards:
            guard.note()
        self._side.groups.close()
        if self._checkpoint.mirror is not None:
            self._checkpoint.mirror.end()

    def has_mended(self) -> bool:
        """Whether what may have ended a query was found, so that the next one does without it."""
        settled = [guard.settle() for guard in self._side.guards]
        return any(settled)

    def explain(self, error: BaseException) -> BaseException:
        """The error in the words of the user's function that led to it, if one did."""
        found = self._side.calls.cause()
        return error if found is None else found

    def trouble(self) -> str | None:
        """What hinders, in one line, while rows are delivered all the same."""
        mirror = self._checkpoint.mirror
        return self._side.trouble() or (mirror.trouble() if mirror is not None else None) or self.unread()

    def unread(self) -> str | None:
        """What is told of a table of which every message was malformed, also when the job has ended."""
        reasons = self.tally.unread()
        unread = (one.trouble(reasons[one.table]) for one in self._side.dead_letters if one.table in reasons)
        return next(unread, None)


_WAITS_FOR_DATA: Final = "Waiting for data to arrive"
"""What Spark's StreamingQueryStatus says once it has asked all sources for their ends and there is nothing to read."""

LOOK_AGAIN_S = 1
"""How often a job looks whether partitions of its tables have become whole without new rows."""

STOP_GRACE_S = 60.0
"""How long a stop waits for the delivery under way."""

PAUSE_WAIT_S: Final = 60.0
"""Seconds that a savepoint waits for the micro-batch under way."""


class _Stopped(Exception):
    """Ends a micro-batch that has not begun to be delivered when the job is stopped."""


class StreamPipeline:
    """Micro-batches, for ever or until what was there at the start is read.

    A query that ends with an error that may pass is started again; its checkpoint knows where it stood.
    """

    def __init__(self, frame: DataFrame, delivery: _Delivery, checkpoint: Checkpoint, restarts: Restarts) -> None:
        self._frame = frame
        self._delivery = delivery
        self._checkpoint = checkpoint
        self._restarts = restarts
        self._query: StreamingQuery | None = None
        self._error: BaseException | None = None
        self._trouble: str | None = None
        self._delivering = threading.Lock()
        self._stopping = threading.Event()
        self._over = threading.Event()

    @classmethod
    def run(
        cls,
        frame: DataFrame,
        outputs: Sequence[Output],
        checkpoint: Checkpoint,
        side: SideOutputs,
        partitions: PartitionCommits,
        *,
        bounded: bool,
        interval_ms: int,
        restarts: Restarts,
        narrow: bool,
    ) -> StreamPipeline:
        """Start the query on the checkpoint. `narrow` says that no row of it can be large."""
        pipeline = cls(frame, _Delivery(outputs, checkpoint, side, partitions), checkpoint, restarts)
        start = partial(pipeline._start, bounded=bounded, interval_ms=interval_ms, narrow=narrow)
        # Before the query, whose thread tells the groups from then on.
        pipeline._delivery.commit_groups()
        try:
            start()
        except PySparkException as error:
            side.groups.close()
            raise JobError("JOB_FAILED", f"The job did not start: {first_cause(error)}") from error
        pipeline._delivery.began()
        threading.Thread(target=pipeline._watch, args=(start,), name="millstream-job", daemon=True).start()
        return pipeline

    def progress(self) -> JobProgress:
        """The counts up to the latest micro-batch that Spark has reported."""
        self._absorb()
        tally = self._delivery.tally
        if not self._over.is_set():
            self._note_back()
            return replace(tally.progress("running"), trouble=self._trouble or self._delivery.trouble())
        tally.note_end()
        return replace(tally.progress("failed" if self.failure() else "ended"), trouble=self._delivery.unread())

    def wait(self, timeout_s: float) -> bool:
        """Whether the query has ended within `timeout_s`."""
        return self._over.wait(timeout_s)

    def failure(self) -> JobError | None:
        """The first useful cause, where the query has failed."""
        error = self._error
        if error is None or self._stopping.is_set() or not self._over.is_set():
            return None
        if isinstance(error, JobError):
            return error
        return JobError("JOB_FAILED", f"The job failed: {first_cause(error)}")

    def stop(self) -> None:
        """End the query. A delivery under way may finish; what it had not begun is replayed at the next start."""
        if self._over.is_set():
            return
        self._stopping.set()
        # Spark interrupts what it finds: in the middle of a delivery that would leave half a batch in the sinks, and
        # its thread dies of the long error text.
        if self._delivering.acquire(timeout=STOP_GRACE_S):
            self._delivering.release()
        query = self._query
        if query is not None:
            query.stop()
        self._over.wait(STOP_GRACE_S)

    @contextlib.contextmanager
    def between_batches(self) -> Iterator[None]:
        """While this lasts no micro-batch runs; one under way is over before.

        Raises JobError SAVEPOINT_REFUSED where that one takes longer than `PAUSE_WAIT_S`.
        """
        if not self._delivering.acquire(timeout=PAUSE_WAIT_S):
            words = f"The micro-batch under way did not end within {PAUSE_WAIT_S:.0f} s."
            raise JobError("SAVEPOINT_REFUSED", words, remedy="Try again, or pause the job and write it then.")
        try:
            yield
        finally:
            self._delivering.release()

    def _start(self, *, bounded: bool, interval_ms: int, narrow: bool) -> None:
        writer = (
            self._frame.writeStream.outputMode("append")
            .option("checkpointLocation", str(self._checkpoint.spark))
            .foreachBatch(self._deliver)
        )
        writer = (
            writer.trigger(availableNow=True)
            if bounded
            else writer.trigger(processingTime=f"{interval_ms} milliseconds")
        )
        java: Any = self._frame._jdf
        leaves = java.queryExecution().analyzed().collectLeaves()
        self._checkpoint.fit_log(sum(1 for place in range(leaves.size()) if leaves.apply(place).isStreaming()))
        self._query = start_with_batches(self._frame.sparkSession, writer.start, narrow=narrow)

    def _watch(self, start: Callable[[], None]) -> None:
        """Until the query has ended for good."""
        try:
            while (error := self._await_end()) is not None and not self._stopping.is_set():
                wait_s = self._restarts.next_s(error, mended=self._delivery.has_mended())
                if wait_s is None:
                    self._error = self._delivery.explain(error)
                    return
                cause = first_cause(error)
                self._trouble = f"{cause} The job goes on in {wait_s:.2g} s."
                _log.warning("%s", self._trouble)
                self._note_failure(error, cause)
                if self._stopping.wait(wait_s):
                    return
                self._error = None
                self._checkpoint.clear_scratch()
                start()
                self._delivery.tally.note_restart(cause)
            if not self._stopping.is_set():
                self._delivery.partitions.finish()
        except (JobError, PySparkException, Py4JError, OSError) as error:
            self._error = error
        finally:
            self._absorb()
            self._delivery.note_end()
            self._over.set()

    def _note_failure(self, error: BaseException, cause: str) -> None:
        events = self._delivery.tally.events
        if may_pass(error):
            events.note_away(cause)
        else:
            events.note("checkpoint_failed", f"The micro-batch is done again: {cause}")

    def _note_back(self) -> None:
        """Note that servers answer again, also where no row comes: then Spark waits for data."""
        query = self._query
        if query is not None and self._delivery.tally.events.is_away:
            with contextlib.suppress(PySparkException, Py4JError):
                if query.isActive and query.status["message"] == _WAITS_FOR_DATA:
                    self._delivery.tally.events.note_back()

    def _await_end(self) -> BaseException | None:
        """Wait for the query's end; its error, if it had one."""
        query = self._query
        assert query is not None
        with contextlib.suppress(PySparkException):
            # A failed query raises here, in Spark's own many words.
            while self._delivery.partitions.are_awaited and not query.awaitTermination(LOOK_AGAIN_S):
                self._look_between(query)
            query.awaitTermination()
        return self._error or query.exception()

    def _look_between(self, query: StreamingQuery) -> None:
        """Partitions become whole with time, also while no rows come."""
        with self._delivering:
            if self._stopping.is_set():
                return
            try:
                self._delivery.partitions.between()
            except JobError as error:
                self._error = error
        if self._error is not None:
            query.stop()

    def _deliver(self, batch: DataFrame, batch_id: int) -> None:
        with self._delivering:
            if self._stopping.is_set():
                raise _Stopped("the job is stopped")
            try:
                self._absorb()
                self._checkpoint.begin_delivery(batch_id)
                self._delivery.run(batch, batch_id, partial(self._checkpoint.end_of, batch_id))
                self._checkpoint.end_delivery(batch_id)
                self._delivery.tally.note_checkpoint(time.time_ns() // 1_000_000)
            except BaseException as error:
                self._error = error
                raise
            self._restarts.reset()
            self._trouble = None

    def _absorb(self) -> None:
        query = self._query
        if query is None:
            return
        with contextlib.suppress(Py4JError):
            report = query.lastProgress
            if report is not None:
                self._delivery.tally.absorb(msgspec.json.decode(report.json))


_CANCEL_AGAIN_S = 0.2
"""How often a pass that is broken off is told so."""


class BatchPipeline:
    """All rows between two positions in one pass, in a thread of its own."""

    def __init__(self, delivery: _Delivery, *, only_shows: bool) -> None:
        self._delivery = delivery
        self._only_shows = only_shows
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._cancel: Callable[[], None] = lambda: None

    @classmethod
    def run(
        cls,
        frame: DataFrame,
        ends: Mapping[str, Position],
        outputs: Sequence[Output],
        checkpoint: Checkpoint,
        side: SideOutputs,
        partitions: PartitionCommits,
    ) -> BatchPipeline:
        """Start the pass."""
        only_shows = all(isinstance(output.sink, PrintSink) for output in outputs)
        pipeline = cls(_Delivery(outputs, checkpoint, side, partitions), only_shows=only_shows)
        pipeline._thread = threading.Thread(target=pipeline._work, args=(frame, ends), name="millstream-batch")
        pipeline._thread.daemon = True
        pipeline._thread.start()
        return pipeline

    def progress(self) -> JobProgress:
        """The counts; all of them come at the end."""
        tally = self._delivery.tally
        if self._running():
            return tally.progress("running")
        tally.note_end()
        return replace(tally.progress("failed" if self.failure() else "ended"), trouble=self._delivery.unread())

    def wait(self, timeout_s: float) -> bool:
        """Whether the pass has ended within `timeout_s`."""
        assert self._thread is not None
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def failure(self) -> JobError | None:
        """The first useful cause, where the pass has failed."""
        if self._stopping:
            return None
        if self._error is None or isinstance(self._error, JobError):
            return self._error
        return JobError("JOB_FAILED", f"The job failed: {first_cause(self._error)}")

    def stop(self) -> None:
        """Wait for the pass, which cannot be left half done; one that only shows rows is broken off."""
        if self._thread is None:
            return
        self._stopping = self._only_shows and self._running()
        while self._stopping and self._running():
            # Again and again: only what Spark is computing right now hears it.
            self._cancel()
            self._thread.join(_CANCEL_AGAIN_S)
        self._thread.join()

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self, frame: DataFrame, ends: Mapping[str, Position]) -> None:
        began_s = time.monotonic()
        try:
            self._set_group(frame)
            self._delivery.run(frame, 0, lambda: ends)
            self._delivery.partitions.finish()
            self._delivery.note_end()
            for end in ends.values():
                self._delivery.tally.read_to(end, time.monotonic() - began_s)
        except Exception as error:  # noqa: BLE001 - what the callbacks of users raise must not look like success
            self._error = self._delivery.explain(error)

    def _set_group(self, frame: DataFrame) -> None:
        """Give the Spark jobs of this thread a name, so that a stop can end them and no others."""
        context, group = frame.sparkSession.sparkContext, f"millstream-batch-{uuid.uuid4().hex}"
        context.setJobGroup(group, "one pass", interruptOnCancel=True)
        self._cancel = partial(context.cancelJobGroup, group)
        if self._stopping:
            raise _Stopped("the job is stopped")
