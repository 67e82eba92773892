"""State files as messages of a compacted topic: the last message of a key is the file; an empty one deletes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

from millstream.model.errors import ConnectionFailed, MillstreamError, NameRefused, Unreachable
from millstream.model.message import Message
from millstream.protocol.changelog import key_of_record
from millstream.protocol.record import split_record
from millstream.streams.errors import JobError
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.topic_log import TopicLog
from millstream.streams.state.unreachable import StateDenied, StateUnreachable, try_again

__all__ = ["TopicFiles"]

_Result = TypeVar("_Result")

_REMEDY: Final = "Is the broker running, and is 'millstream.nameserver' right?"
_DENIED_REMEDY: Final = "Let the job's user read and write the topic; it must be compacted."


class _Place(NamedTuple):
    queue: str
    offset: int
    size: int


class TopicFiles:
    """The files of the directory `directory` in a topic, which several directories may share.

    A file is one message, so it has no more bytes than one may have. `open_log` makes the connection, which is opened
    by the first call and again after an error. Not for several threads at once.
    """

    def __init__(
        self,
        topic: str,
        directory: str,
        open_log: Callable[[], TopicLog],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.location = f"the topic {topic}"
        self._topic = topic
        self._prefix = f"{quote(directory, safe='')}/"
        self._open = open_log
        self._pause = pause
        self._log: TopicLog | None = None
        self._ends: dict[str, int] = {}
        self._places: dict[str, _Place] = {}

    def prepare(self) -> None:
        """Make the topic, compacted, if it is not there.

        Raises OSError, and JobError STATE_DENIED for a topic that does not keep the last message of each key.
        """
        self._call("", lambda log: log.ensure_topic(self._topic, compacted=True))
        if not self._call("", lambda log: log.is_compacted(self._topic)):
            self.close()
            words = f"The topic {self._topic} is not compacted, so it would lose parts of the state."
            remedy = "Make it with: millstream topic create NAME --compacted; or let the job make another one."
            raise JobError("STATE_DENIED", words, remedy=remedy)

    def sizes(self) -> dict[str, int]:
        """As of all `StateFiles`. The first look reads the whole topic."""
        self._call("", self._look)
        return {name: place.size for name, place in self._places.items()}

    def read(self, name: str) -> bytes:
        return self._call(name, lambda log: self._read(log, name))

    def write(self, name: str, content: bytes) -> None:
        message = Message(self._topic, content, keys=(self._prefix + name,))
        self._call(name, lambda log: log.send([message], by_key=True))

    def delete(self, name: str) -> None:
        self.write(name, b"")

    def close(self) -> None:
        """End the connection."""
        log, self._log = self._log, None
        if log is not None:
            with suppress(MillstreamError, OSError):
                log.close()

    def _look(self, log: TopicLog) -> None:
        """Take note of what came since the last look."""
        prefix = self._prefix.encode()
        for queue, span in log.spans(self._topic).items():
            begin = max(self._ends.get(queue, 0), span.min_offset)
            if begin < span.max_offset:
                for records in log.read(self._topic, Slice(queue, begin, span.max_offset)):
                    for record in records:
                        parts = split_record(record)
                        key = key_of_record(parts)
                        if key is None or not key.startswith(prefix):
                            continue
                        name = key[len(prefix) :].decode()
                        self._places.pop(name, None)
                        if len(parts.body):
                            self._places[name] = _Place(queue, parts.queue_offset, len(parts.body))
            self._ends[queue] = span.max_offset

    def _read(self, log: TopicLog, name: str) -> bytes:
        self._look(log)
        place = self._places.get(name)
        if place is None:
            raise FileNotFoundError(f"{self.location} has no {name}")
        for records in log.read(self._topic, Slice(place.queue, place.offset, place.offset + 1)):
            for record in records:
                parts = split_record(record)
                if parts.queue_offset == place.offset:
                    return bytes(parts.body)
        # Compaction took it between the two looks, for something newer.
        raise Unreachable(f"{name} was replaced while it was read.")

    def _call(self, name: str, call: Callable[[TopicLog], _Result]) -> _Result:
        def call_connected() -> _Result:
            if self._log is None:
                self._log = self._open()
            try:
                return call(self._log)
            except FileNotFoundError:
                raise
            except (MillstreamError, OSError):
                self.close()
                raise

        return try_again(call_connected, lambda error: self._explain(name, error), self._pause)

    def _explain(self, name: str, error: Exception) -> StateUnreachable:
        if not isinstance(error, MillstreamError | OSError):
            raise error
        if isinstance(error, ConnectionFailed | NameRefused | OSError):
            return StateUnreachable(self.location, name, str(error), _REMEDY)
        return StateDenied(self.location, name, str(error), _DENIED_REMEDY)
