"""Aligns several scans of one table in a query, so that they end each micro-batch at the same offsets.

Spark asks each pass for the end of the next micro-batch by itself, and rows come in between. Were the ends different, a
query could not be changed: what some branches have read others would read again, or miss. So the first pass that is
asked leaves its answer in a file, and the others take it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from millstream.streams.spark.source.position import Position
from millstream.streams.state.atomic_file import write_file

__all__ = ["MOVED", "AgreedReader"]

MOVED: Final = "moved"
"""The one member of an offset that holds those of all tables by name: Spark's log knows them by their order alone,
which is another one in a changed query."""

_NAME: Final = "name"


class _Answer(msgspec.Struct, frozen=True):
    """The end of a micro-batch, and the passes that have it."""

    end: dict[str, Any]
    passes: list[str]


class AgreedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a table, as one of several passes that agree by `file`; a blank one: there is no other pass."""

    def __init__(self, reader: Any, file: str) -> None:
        self._reader = reader
        self._file = file
        self._pass = uuid.uuid4().hex
        self._is_fresh = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The reader's."""
        found: dict[str, Any] = self._reader.initialOffset()
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The reader's."""
        found: ReadLimit = self._reader.getDefaultReadLimit()
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a bounded run."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch: what another pass has answered, else the reader's own."""
        begin = self._own(start)
        is_fresh, self._is_fresh = self._is_fresh, False
        if not self._file:
            own: dict[str, Any] = self._reader.latestOffset(begin, limit)
            return own
        answer = self._read_answer()
        # That there is nothing was perhaps said before this pass began.
        if (
            answer is not None
            and self._pass not in answer.passes
            and _covers(answer.end, begin)
            and (answer.end != begin or not is_fresh)
        ):
            self._tell(_Answer(answer.end, [*answer.passes, self._pass]))
            return answer.end
        end: dict[str, Any] = self._reader.latestOffset(begin, limit)
        self._tell(_Answer(end, [self._pass]))
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The reader's."""
        found: dict[str, Any] | None = self._reader.reportLatestOffset()
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        found: Sequence[InputPartition] = self._reader.partitions(self._own(start), self._own(end))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; runs in a worker."""
        rows: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return rows

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the reader that everything up to `end` is over."""
        self._reader.commit(self._own(end))

    def stop(self) -> None:
        """End the reader."""
        self._reader.stop()

    def _own(self, offset: dict[str, Any]) -> dict[str, Any]:
        """The offset of this table, where `offset` may hold those of all."""
        if MOVED not in offset:
            return offset
        found: dict[str, Any] = offset[MOVED][self._reader.initialOffset()[_NAME]]
        return found

    def _read_answer(self) -> _Answer | None:
        try:
            return msgspec.json.decode(Path(self._file).read_bytes(), type=_Answer)
        except FileNotFoundError:
            return None

    def _tell(self, answer: _Answer) -> None:
        write_file(Path(self._file), msgspec.json.encode(answer), durable=False)


def _covers(end: dict[str, Any], begin: dict[str, Any]) -> bool:
    """Whether a pass that stands at `begin` may read up to `end`: no queue goes back."""
    until, start = Position.from_json(end), Position.from_json(begin)
    return all(until.offset(queue) >= offset for queue, offset in start.queues.items()) and until.wakes >= start.wakes
