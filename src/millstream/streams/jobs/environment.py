"""The environment of a job: table connections, models from topics, and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from millstream.model.errors import MillstreamError
from millstream.protocol.changelog import key_of_record
from millstream.protocol.record import split_record
from millstream.streams.errors import ModelError
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.outputs import Output, open_source, outputs_of
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import LateOutput
from millstream.streams.learning.model import ModelReference
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.plan.tables import Table
from millstream.streams.spark.functions.user_calls import SpooledCall
from millstream.streams.spark.operators.operator_reports import LateShape
from millstream.streams.spark.runtime.micro_batch import LoggedTime, ToldTime
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.reading import Source
from millstream.streams.spark.source.topic_log import TopicLog, open_log
from millstream.streams.state.spool import Spool

__all__ = ["JobEnvironment", "ModelTopic"]


class JobEnvironment:
    """What the tables themselves say. A test of a job puts its own in this place."""

    parts_hits = True
    """Whether what keeps state over hits may be a query of its own, with a topic between."""

    def source(self, table: Table, settings: JobSettings) -> Source:
        """What `table` is read from. Raises what `open_source` raises."""
        return open_source(table, settings)

    def outputs(
        self, plan: JobPlan | QueryPlan, settings: JobSettings, on_rows: Callable[[ResultRows], None] | None
    ) -> list[Output]:
        """The outputs of a job with their sinks. Raises what `outputs_of` raises."""
        return outputs_of(plan, settings, on_rows)

    def late(self, spool: Path, shapes: Mapping[str, Sequence[LateShape]], settings: JobSettings) -> LateOutput:
        """What takes the late rows that workers leave in `spool`."""
        return LateOutput(spool, shapes, settings)

    def calls(self, spool: Spool[SpooledCall], tables: Mapping[str, Table], settings: JobSettings) -> FailedCalls:
        """What takes the failed calls of users' functions that workers leave in `spool`."""
        return FailedCalls(spool, tables, settings)

    def now_us(self, checkpoint: Path, *, batch: bool) -> Callable[[], int]:
        """What tells a worker the processing time of its micro-batch in microseconds since 1970.

        `checkpoint` is Spark's; a batch job has no log of offsets there, and one time.
        """
        return ToldTime(time.time_ns() // 1000) if batch else LoggedTime(str(checkpoint / "offsets"))


_TIMEOUT_S = 10.0


class _Arrived(NamedTuple):
    """A message of the model; the greatest is the one that counts. Without an `artefact` the model is taken back."""

    stored_ms: int
    offset: int
    queue: str
    artefact: bytes

    @property
    def version(self) -> str:
        return f"{self.queue.replace('/', '-')}-{self.offset}"


class ModelTopic:
    """What a topic says of one model. Each look reads what came since the last one, over a connection of its own."""

    def __init__(self, topic: str, key: str, open_topic: Callable[[], TopicLog]) -> None:
        self._topic = topic
        self._key = key
        self._open = open_topic
        self._ends: dict[str, int] = {}
        self._last: _Arrived | None = None

    @classmethod
    def of(cls, reference: ModelReference, nameserver: str) -> ModelTopic:
        """That of a model; `nameserver` is the job's, where the model names none."""
        where = reference.nameserver or nameserver
        return cls(reference.topic, reference.stored, partial(open_log, where, timeout_s=_TIMEOUT_S))

    def newest(self) -> tuple[str, bytes]:
        """What the newest version is called, and its artefact. Raises ModelError MODEL_NOT_FOUND."""
        try:
            log = self._open()
            try:
                self._read(log)
            finally:
                log.close()
        except MillstreamError as error:
            words = f"The topic {self._topic} of the model {self._key} cannot be read: {error.message}"
            raise ModelError("MODEL_NOT_FOUND", words, remedy=error.remedy) from None
        if self._last is None or not self._last.artefact:
            remedy = f"Send it: millstream model send {self._key} FILE --topic {self._topic}."
            words = f"The topic {self._topic} has no model {self._key}."
            raise ModelError("MODEL_NOT_FOUND", words, remedy=remedy)
        return self._last.version, self._last.artefact

    def _read(self, log: TopicLog) -> None:
        key = self._key.encode()
        for queue, span in log.spans(self._topic).items():
            begin = max(self._ends.get(queue, 0), span.min_offset)
            if begin < span.max_offset:
                for records in log.read(self._topic, Slice(queue, begin, span.max_offset)):
                    for record in records:
                        parts = split_record(record)
                        if key_of_record(parts) == key:
                            found = _Arrived(parts.store_timestamp_ms, parts.queue_offset, queue, bytes(parts.body))
                            self._last = found if self._last is None else max(self._last, found)
                self._ends[queue] = span.max_offset
