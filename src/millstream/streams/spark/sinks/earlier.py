"""What an earlier attempt of a micro-batch left in a topic, so that the next one sends only the rest.

Before a micro-batch is written, the ends of the topic's queues are noted in the checkpoint. Where the note of that
very micro-batch is there already, an attempt of it was cut short: what lies behind those ends and has its origin is
read back, message by message.

A task may outlive its attempt: Spark gives a micro-batch up when one task fails, and another one is still sending. So
each attempt has a name in the note, a task sends only while the note has that of its own, and holds a lock meanwhile
for which the next attempt waits before it puts its name there.

A task that Spark runs again within the micro-batch reads back what was sent by itself
alone, for other tasks may send equal messages meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from millstream.model.errors import NameRefused, TimedOut
from millstream.model.message import Message
from millstream.streams.errors import JobError
from millstream.streams.spark.sinks.message_maker import ORIGIN
from millstream.streams.spark.source.messages import Messages, RecordMessages, TableMessages
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.topic_log import TopicLog
from millstream.streams.state.atomic_file import write_file

__all__ = ["LONGEST_SEND_S", "BatchNote", "Fingerprints", "ends_of", "fingerprint", "left_behind", "origin_of_task"]

_DIGEST_BYTES = 16
_OF_TASK = "/"

LONGEST_SEND_S: Final = 60.0
"""Seconds that an attempt waits for what a task of an earlier one is sending; then it fails, and the next one waits."""

_POLL_S: Final = 0.02

Fingerprints = Counter[bytes]
"""How often each message is there."""


class BatchNote(msgspec.Struct, frozen=True):
    """The micro-batch that was begun last, where the topic's queues ended then, and the attempt that may send."""

    batch_id: int
    ends: dict[str, int]
    attempt: str = ""

    @classmethod
    def read(cls, file: Path) -> BatchNote | None:
        """The note in `file`; None if there is none."""
        try:
            return msgspec.json.decode(file.read_bytes(), type=cls)
        except FileNotFoundError:
            return None

    def write(self, file: Path) -> None:
        """Put the note in the place of the one before."""
        # No more durable than Spark's own note of which micro-batch it is.
        write_file(file, msgspec.json.encode(self), durable=False)

    @classmethod
    def begin(cls, file: Path, batch_id: int, find_ends: Callable[[], dict[str, int]]) -> tuple[BatchNote, bool]:
        """The note of a new attempt, which is in `file` now, and whether it is not the micro-batch's first.

        No task of an earlier attempt sends any more. Raises TimedOut where one does after `LONGEST_SEND_S`.
        """
        before = cls.read(file)
        is_repeated = before is not None and before.batch_id == batch_id
        ends = before.ends if before is not None and is_repeated else find_ends()
        note = cls(batch_id, ends, uuid.uuid4().hex)
        if before is None:
            note.write(file)
        else:
            with file.open("rb") as held:
                _lock_out(held)
                note.write(file)
        return note, is_repeated

    @contextlib.contextmanager
    def hold_right_to_send(self, file: Path) -> Iterator[None]:
        """While this lasts no later attempt begins. Raises JobError SINK_FAILED where one has begun."""
        with file.open("rb") as held:
            # Where files cannot be locked, looking at the note is all that can be done.
            with contextlib.suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_SH)
            # Not what was opened: that may be the note before, if its place was taken meanwhile.
            if self.read(file) != self:
                words = f"A later attempt of the micro-batch {self.batch_id} has begun; this one sends no more."
                raise JobError("SINK_FAILED", words, remedy="")
            yield


def _lock_out(held: IO[bytes]) -> None:
    limit_s = time.monotonic() + LONGEST_SEND_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit_s:
                words = f"A task of an earlier attempt of the micro-batch still sends after {LONGEST_SEND_S:.0f} s."
                raise TimedOut(words) from None
            time.sleep(_POLL_S)
        except OSError:
            return
        else:
            return


def ends_of(log: TopicLog, topic: str) -> dict[str, int]:
    """Where the queues end; nothing for a topic that does not exist yet."""
    try:
        return {queue: span.max_offset for queue, span in log.spans(topic).items()}
    except NameRefused:
        return {}


def origin_of_task(origin: str, partition: int) -> str:
    """The origin of what one task sends; `origin` is that of the micro-batch."""
    return f"{origin}{_OF_TASK}{partition}"


def left_behind(log: TopicLog, topic: str, note: BatchNote, origin: str) -> Fingerprints:
    """The messages of that origin that lie behind the noted ends: of a micro-batch with all its tasks, or of one."""
    found: Fingerprints = Counter()
    ends = ends_of(log, topic)
    bulk = bool(ends) and log.takes_bulk(topic)
    for queue, end in ends.items():
        start = note.ends.get(queue, 0)
        if start < end:
            for messages in _messages(log, topic, Slice(queue, start, end), bulk=bulk):
                found.update(_fingerprints(messages, origin))
    return found


def fingerprint(message: Message) -> bytes:
    """What tells a message from others of its batch."""
    named = {name: value for name, value in message.user_properties.items() if name != ORIGIN}
    return _digest(message.body, message.keys, message.tag, named)


def _messages(log: TopicLog, topic: str, part: Slice, *, bulk: bool) -> Iterator[Messages]:
    if not bulk:
        yield from map(RecordMessages, log.read(topic, part))
        return
    yield from (TableMessages(table, 0) for table in log.read_bulk(topic, part))


def _fingerprints(messages: Messages, origin: str) -> Iterator[bytes]:
    columns = (messages.bodies(), messages.metadata("keys"), messages.metadata("tag"), messages.metadata("properties"))
    for body, keys, tag, named in zip(*columns, strict=True):
        found = named.pop(ORIGIN, "")
        if origin in (found, found.partition(_OF_TASK)[0]):
            yield _digest(body, keys or (), tag, named)


def _digest(body: bytes | memoryview, keys: Iterable[str], tag: str | None, named: dict[str, str]) -> bytes:
    beside = msgspec.json.encode([" ".join(keys).split(), tag, named], order="sorted")
    digest = hashlib.blake2b(beside, digest_size=_DIGEST_BYTES)
    digest.update(body)
    return digest.digest()
