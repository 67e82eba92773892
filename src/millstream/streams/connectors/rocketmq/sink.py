"""The topic sink: each row becomes one message, exactly once.

A micro-batch that is repeated after a failure sends only what its earlier attempt did not (`earlier`), and so does a
task that Spark runs again within a micro-batch. Tables with a
key (`upsert-rocketmq`) need not look: the last message of a key counts, so they send the last row of each key again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.model.message import Message
from millstream.streams.connectors.table import SinkRequest
from millstream.streams.plan.changelog import RowKind
from millstream.streams.spark.sinks.earlier import (
    BatchNote,
    Fingerprints,
    ends_of,
    fingerprint,
    left_behind,
    origin_of_task,
)
from millstream.streams.spark.sinks.message_maker import MessageMaker
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, SinkWriter, Written
from millstream.streams.spark.source.formats.body_format import CHANGELOG_FORMATS
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log

__all__ = ["SEND_TIMEOUT_S", "MessageMaker", "TopicSink", "UpsertSink", "topic_sink"]

SEND_TIMEOUT_S: Final = 10.0
"""How long the acknowledgement of one send may take."""

_ROWS_PER_BULK_MESSAGE = 10_000

_MESSAGES_PER_SEND = 1_000
"""Messages handed to the client at once; it makes requests of its own size of them."""

MAX_WAITING_KEYS = 50_000
"""Keys whose last row waits for the end of a micro-batch, per task; beyond them a key may be written more than once."""

_GONE = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)
_NULL = b"null"


class TopicSink:
    """Sends rows to a topic while the tasks run."""

    def __init__(
        self, name: str, maker: MessageMaker, nameserver: str, *, timeout_s: float, access: Access | None = None
    ) -> None:
        self.name = name
        self.schema = maker.schema
        self._maker = maker
        self._nameserver = nameserver
        self._timeout_s = timeout_s
        self._access = access or Access()
        self._earlier: Fingerprints = Counter()
        self._note = BatchNote(-1, {})
        self._note_file = Path()

    def begin(self, attempt: Attempt) -> bool:
        """Look for what an earlier attempt left; the first one notes where the topic ends."""
        self._maker = self._maker.with_origin(f"{attempt.job_id}-{attempt.number}-{attempt.batch_id}")
        self._earlier = Counter()
        # Tasks may work in another directory.
        self._note_file = attempt.notes.absolute() / f"{attempt.number}.json"
        log = open_log(self._nameserver, timeout_s=self._timeout_s, access=self._access)
        try:
            self._note, is_repeated = BatchNote.begin(
                self._note_file, attempt.batch_id, lambda: ends_of(log, self._maker.topic)
            )
            if is_repeated:
                self._earlier = left_behind(log, self._maker.topic, self._note, self._maker.origin)
        finally:
            log.close()
        return bool(self._earlier)

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer with a connection of its own."""
        log = open_log(self._nameserver, timeout_s=self._timeout_s, access=self._access)
        bulk = log.takes_bulk(self._maker.topic)
        origin, earlier = self._maker.origin, Counter(self._earlier)
        of_task = origin_of_task(origin, task.partition)
        if task.attempt:
            # One task alone writes what is repeated, so all that is there is its own.
            earlier = left_behind(log, self._maker.topic, self._note, origin if self._earlier else of_task)
        right = partial(self._note.hold_right_to_send, self._note_file)
        return _Sender(self._maker.with_origin(of_task), log, earlier, right, bulk=bulk)

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Nothing to do: what was acknowledged is visible."""


class UpsertSink:
    """Sends the last row of each key of a micro-batch; a key that is gone gets a message without a body.

    Topics that are not compacted take no such message; there its body is `null`.
    """

    def __init__(
        self, name: str, maker: MessageMaker, nameserver: str, *, timeout_s: float, access: Access | None = None
    ) -> None:
        self.name = name
        self.schema = maker.schema
        self._maker = maker
        self._nameserver = nameserver
        self._timeout_s = timeout_s
        self._access = access or Access()

    def begin(self, attempt: Attempt) -> bool:
        """A repeated micro-batch writes the same rows of its keys again."""
        return False

    def writer(self, task: SinkTask) -> SinkWriter:
        """A writer with a connection of its own."""
        return _UpsertSender(self._maker, open_log(self._nameserver, timeout_s=self._timeout_s, access=self._access))

    def commit(self, batch_id: int, written: Sequence[Written]) -> None:
        """Nothing to do: what was acknowledged is visible."""


class _Sender:
    """Gathers the rows of a task to sends of one size. Rows that change keep their order, key by key."""

    def __init__(
        self,
        maker: MessageMaker,
        log: TopicLog,
        earlier: Fingerprints,
        right_to_send: Callable[[], AbstractContextManager[None]],
        *,
        bulk: bool,
    ) -> None:
        self._maker = maker
        self._log = log
        self._right_to_send = right_to_send
        self._earlier = earlier
        self._bulk = bulk
        self._size = _ROWS_PER_BULK_MESSAGE if bulk else _MESSAGES_PER_SEND
        self._changes = maker.body.name in CHANGELOG_FORMATS
        self._waiting: list[Message] = []

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; a full send is sent at once."""
        numbers: list[int] | None = None if kinds is None else kinds.to_pylist()
        if numbers is not None and not self._changes:
            # EMIT says a window's row again: the topic gets each one, and none is taken back.
            rows = rows.take(pa.array([place for place, kind in enumerate(numbers) if kind not in _GONE], pa.int32()))
            numbers = None
        for message in self._maker.messages(rows, numbers):
            if self._earlier and self._is_there(message):
                continue
            self._waiting.append(message)
            if len(self._waiting) >= self._size:
                self._send()

    def finish(self) -> bytes:
        """Send what is left and close the connection."""
        self._send()
        self._log.close()
        return b""

    def _is_there(self, message: Message) -> bool:
        known = fingerprint(message)
        if not self._earlier.get(known):
            return False
        self._earlier[known] -= 1
        return True

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        with self._right_to_send():
            if self._bulk:
                self._log.send_bulk(self._maker.topic, self._maker.bulk_rows(waiting))
            else:
                self._log.send(waiting, by_key=self._changes)


class _UpsertSender:
    def __init__(self, maker: MessageMaker, log: TopicLog) -> None:
        self._maker = maker
        self._log = log
        self._nothing = b"" if log.is_compacted(maker.topic) else _NULL
        self._waiting: dict[tuple[str, ...], Message] = {}

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        """Take rows; the last one of each key waits."""
        numbers = [RowKind.INSERT.value] * rows.num_rows if kinds is None else kinds.to_pylist()
        for kind, message in zip(numbers, self._maker.messages(rows), strict=True):
            if kind in _GONE:
                message.body = self._nothing
            # A key that comes again goes to the end, so that the topic has the order of the last rows.
            self._waiting.pop(message.keys, None)
            self._waiting[message.keys] = message
        if len(self._waiting) > MAX_WAITING_KEYS:
            self._send()

    def finish(self) -> bytes:
        """Send the last rows and close the connection."""
        self._send()
        self._log.close()
        return b""

    def _send(self) -> None:
        waiting, self._waiting = list(self._waiting.values()), {}
        for start in range(0, len(waiting), _MESSAGES_PER_SEND):
            self._log.send(waiting[start : start + _MESSAGES_PER_SEND], by_key=True)


def topic_sink(request: SinkRequest) -> TopicSink | UpsertSink:
    """The topic of an INSERT."""
    table = request.insert.table
    kind = UpsertSink if table.upserts else TopicSink
    nameserver = table.options.get("nameserver", request.nameserver)
    maker = MessageMaker.of(table)
    return kind(table.name, maker, nameserver, timeout_s=SEND_TIMEOUT_S, access=Access.of(table.options))
