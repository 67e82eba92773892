"""The versions of a model as messages of a topic: the key is the model's name, the body its artefact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from millstream.model.errors import MillstreamError
from millstream.protocol.changelog import key_of_record
from millstream.protocol.record import split_record
from millstream.streams.errors import ModelError
from millstream.streams.learning.model import ModelReference
from millstream.streams.spark.source.partition import Slice
from millstream.streams.spark.source.topic_log import TopicLog, open_log

__all__ = ["ModelTopic"]

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
