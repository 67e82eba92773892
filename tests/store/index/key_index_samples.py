"""Stores with a key index beside them, and what their queries should answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from crash.file_twins import HastyFiles

from millstream.model.clock import ManualClock
from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.store.files import FileLayer
from millstream.store.index.key_index import MAX_RESULTS, KeyIndex, KeyIndexOptions
from millstream.store.message_store import MessageStore, StoreOptions
from millstream.store.retention import RetentionPolicy
from millstream.store.write_batch import PendingRecord

__all__ = ["ALL_TIMES", "SMALL_SEGMENTS", "TINY_RUNS", "IndexedStore", "Keyed", "keyed", "keyed_batch"]

SMALL_SEGMENTS = StoreOptions(
    segment_bytes=2048,
    consume_queue_entries=50,
    retention=RetentionPolicy(keep_ms=0, scarce_used_ratio=2.0, full_used_ratio=2.0),
)
"""Retention takes whatever it may, and never looks at the disk."""

TINY_RUNS = KeyIndexOptions(run_log_bytes=700, fan_in=3, max_merged_log_bytes=20_000, min_merged_entries=1)
ALL_TIMES = (0, 2**62)


class Keyed(NamedTuple):
    """A stored record and the keys that should lead to it."""

    topic: str
    log_offset: int
    stored_ms: int
    keys: frozenset[str]


def properties(keys: str | None, unique_key: str | None) -> dict[str, str]:
    named = {"KEYS": keys, "UNIQ_KEY": unique_key, "TAGS": "a"}
    return {name: value for name, value in named.items() if value is not None}


def keyed(
    keys: str | None = None,
    unique_key: str | None = None,
    *,
    topic: str = "orders",
    body: bytes = b"body",
    born_host: str = "10.0.0.9",
    flag: SystemFlag = SystemFlag.NONE,
) -> PendingRecord:
    held = properties(keys, unique_key)
    return PendingRecord(OutgoingMessage(topic, body, held, born_host=Address(born_host, 4), system_flag=flag), 0)


def keyed_batch(
    inner: Iterable[tuple[str | None, str | None]], unique_key: str, *, topic: str = "batches"
) -> PendingRecord:
    """A record that holds a message for each pair of KEYS and UNIQ_KEY."""
    items = [encode_batch_item(b"body", properties(*pair)) for pair in inner]
    message = OutgoingMessage(
        topic, b"".join(items), {"UNIQ_KEY": unique_key}, system_flag=SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    )
    return PendingRecord(message, 0, len(items))


class IndexedStore:
    """A store and its index in one directory; `stored` is the model."""

    def __init__(
        self,
        directory: Path,
        *,
        options: KeyIndexOptions = TINY_RUNS,
        store_options: StoreOptions = SMALL_SEGMENTS,
        files: FileLayer | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.directory = directory
        self.runs = directory / "keys"
        self.files = files or HastyFiles()
        self.options = options
        self.store = MessageStore.open(
            directory, store_options, clock=clock or ManualClock(step_ms=700), files=self.files
        )
        self.stored: list[Keyed] = []
        self.index = self.open_index()

    def open_index(self) -> KeyIndex:
        return KeyIndex(
            self.runs,
            self.store._log,
            self.files,
            counts=self.store.counts,
            options=self.options,
            rest=lambda: None,
        )

    def reopen_index(self) -> None:
        self.index.close()
        self.index = self.open_index()

    @property
    def end(self) -> int:
        return self.store.written_log_offset

    def put(self, *records: PendingRecord, keys: Iterable[str] | None = None) -> list[int]:
        """Store the records; the log offsets. `keys` are those of a batch."""
        appended = self.store.put(records)
        for (message, *_), place in zip(records, appended, strict=True):
            found = set(keys or ())
            found.update(word for word in message.properties.get("KEYS", "").split(" ") if word)
            found.update(filter(None, [message.properties.get("UNIQ_KEY")]))
            self.stored.append(Keyed(message.topic, place.log_offset, place.store_timestamp_ms, frozenset(found)))
        return [place.log_offset for place in appended]

    def remove_oldest_segment(self) -> None:
        """Let retention take the log's first segment, unless it is the last one."""
        segments = self.store._log.segments
        if len(segments) > 1:
            self.store.write_checkpoint()
            self.store.pins[:] = [lambda: segments[1].start]
            self.store.retain()
            assert self.store._log.start == segments[1].start
            self.stored = [each for each in self.stored if each.log_offset >= segments[1].start]

    def extend(self, end: int | None = None) -> bool:
        return self.index.extend(self.end if end is None else end)

    def find(
        self,
        key: str,
        topic: str = "orders",
        times: tuple[int, int] = ALL_TIMES,
        count: int = MAX_RESULTS,
        visible: int | None = None,
    ) -> list[int]:
        visible = self.end if visible is None else visible
        return self.index.find(topic, key, *times, count, visible_log_offset=visible)

    def expected(
        self,
        key: str,
        topic: str = "orders",
        times: tuple[int, int] = ALL_TIMES,
        count: int = MAX_RESULTS,
        visible: int | None = None,
    ) -> list[int]:
        """What `find` should answer."""
        visible = self.end if visible is None else visible
        found = [
            each.log_offset
            for each in reversed(self.stored)
            if each.topic == topic
            and key in each.keys
            and times[0] <= each.stored_ms <= times[1]
            and each.log_offset < visible
        ]
        return found[:count]

    def check(self) -> None:
        """Compare the answers for every key that was ever stored."""
        for topic in {each.topic for each in self.stored}:
            for key in {key for each in self.stored for key in each.keys}:
                assert self.find(key, topic) == self.expected(key, topic), (topic, key)

    def damaged_runs(self) -> int:
        """Read every run; how many cannot be read. The next `extend` makes them again."""
        damaged = 0
        for run in self.index._runs:
            try:
                with run.open_reader(self.files) as reader:
                    for number in range(run.blocks):
                        reader.block(number)
            except (StoreError, OSError):
                run.is_damaged = True
                damaged += 1
        return damaged

    def run_files(self) -> list[Path]:
        return sorted(path for path in self.runs.iterdir() if path.suffix != ".tmp")

    def close(self) -> None:
        self.index.close()
        self.store.close()
