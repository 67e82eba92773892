"""Copies of a broker's cold topics as Parquet files and tables: what is copied when, and what goes again.

Decided here, in the event loop; the files are made and the tables changed elsewhere (`ColumnWork`). What was copied is
state of the broker, so a start, a replica and the next master go on where the last one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, cast

import msgspec

from millstream.broker.cold_rounds import explain_error, repeat_rounds, trace_error
from millstream.broker.queues.topics import TopicRegistry
from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_log import StateLog
from millstream.broker.state.state_table import StateTable
from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import MillstreamError
from millstream.model.topic import ColumnAttributes, TopicConfig
from millstream.protocol.remoting.administration.cold_checks import ColumnStatus
from millstream.store.snapshot import Snapshot
from millstream.tiered.cold_map import ColdMap
from millstream.tiered.columns.column_map import (
    ColumnFile,
    ColumnMap,
    ColumnRow,
    ColumnTopic,
    NextFile,
    data_prefix,
    next_file,
    resume_file,
)
from millstream.tiered.columns.column_work import ColumnWork, CopyRequest, TableRequest
from millstream.tiered.objects import MAX_DELETED_KEYS

__all__ = ["ColumnCopies", "ColumnReport"]

COPY_INTERVAL_S: Final = 5.0
"""Seconds between two looks at whether some of a topic is to be copied, where nothing is left to copy at once."""

CLEAN_INTERVAL_S: Final = 60.0
"""Seconds between two looks at what is to go."""

REMOVED_GRACE_MS: Final = 24 * 60 * 60 * 1000
"""Milliseconds between the removal of a file from its table and its deletion: a reader of an older snapshot of the
table may go on for so long."""

TIDY_INTERVAL_MS: Final = 60 * 60 * 1000
"""Milliseconds after which a table is compared with the files again, and its old snapshots are forgotten."""

MAX_UNTOLD_FILES: Final = 16
"""Files of one topic that are put before its table is told of them, while more are due."""

MAX_DAMAGED_READS: Final = 3
"""How often a file whose messages are damaged is tried before they are left out and counted."""

_VERSION: Final = 1
_HOUR_MS: Final = 60 * 60 * 1000
_MS: Final = 1000
_RETRY: Final = Backoff(5.0, 300.0)

_log = logging.getLogger(__name__)


class _RowsDocument(Document):
    rows: dict[str, ColumnTopic | ColumnFile]


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """How the copies of a broker fare."""

    files: int
    bytes: int
    rows: int
    malformed: int
    """Of the rows: those whose bodies do not fit the columns."""
    lost: int
    """Messages that are damaged, and so in none of these files."""
    removed_files: int
    """Files that wait for their deletion."""
    refused: int
    """Declarations of columns that were refused since the start."""
    errors: int
    """Copies and changes of tables that failed since the start, to be tried again."""


@dataclass(slots=True)
class _Trouble:
    """What fails of a topic: how often by now, why, and when it is tried again."""

    failures: int
    words: str
    is_damage: bool
    retry_ms: int


class ObjectKeeper(Protocol):
    """Who keeps the objects of the broker, the files among them."""

    async def check_owner(self) -> None:
        """Raise PREFIX_TAKEN where they are another broker's."""
        ...

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete at most MAX_DELETED_KEYS of them."""
        ...


class ColumnCopies:
    """Started once its broker leads and its cold tier has started; a replica follows the rows.

    `check_columns` refuses columns that cannot be, or that files with others, "" for none, do not fit: COLUMNS_REFUSED.
    """

    def __init__(
        self,
        saved: Snapshot,
        make_work: Callable[[], ColumnWork] | None,
        *,
        cluster: str,
        broker: str,
        clock: Clock,
        keep_hours: int,
        check_columns: Callable[[str, str], None] | None = None,
    ) -> None:
        document = SavedDocument(saved, _RowsDocument, noun="copies of cold topics", version=_VERSION)
        value_type = cast("type[ColumnRow]", ColumnTopic | ColumnFile)
        self.table = StateTable("columns", document, value_type, self)
        """The saved form of the map."""
        self.map = ColumnMap()
        self._make_work = make_work
        self._check_columns = check_columns
        self._cluster = cluster
        self._broker = broker
        self._clock = clock
        self._keep_hours = keep_hours
        self._work: ColumnWork | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._troubles: dict[str, _Trouble] = {}
        self._table_troubles: dict[str, _Trouble] = {}
        self._refused: dict[str, tuple[ColumnAttributes, str]] = {}
        self._looked_at: dict[str, tuple[int, ColumnAttributes]] = {}
        self._untold: dict[str, int] = {}
        """Topics whose tables may lack files, or have some that they should not, and how many are new."""
        self._deleted_now: list[frozenset[str]] = []
        """Keys of files that no row names and that are on their way out: none of them may be begun meanwhile."""
        self._tidied_ms = 0
        self._refusals = self._errors = 0

    # The rows, as state of the broker

    def make_document(self) -> _RowsDocument:
        """See `StateOwner`."""
        return _RowsDocument(version=_VERSION, rows=self.map.rows())

    def load_document(self, document: _RowsDocument) -> None:
        """See `StateOwner`."""
        for key, row in document.rows.items():
            self.map.apply(key, row)

    def apply_change(self, key: str, value: ColumnRow | None) -> None:
        """See `StateOwner`."""
        self.map.apply(key, value)

    def _write(self, rows: Iterable[tuple[str, ColumnRow | None]]) -> None:
        changes = list(rows)
        self.table.write_all(changes)
        for key, row in changes:
            self.map.apply(key, row)

    # From start to close

    def start(
        self,
        cold: ColdMap,
        topics: TopicRegistry,
        state: StateLog,
        objects: ObjectKeeper,
    ) -> None:
        """Begin to copy and to clean. Nothing where there is nobody to do the work."""
        self._cold, self._topics, self._state, self._objects = cold, topics, state, objects
        # What an earlier run, or an earlier master, did not get to tell its tables is told now.
        self._untold = dict.fromkeys({*self.map.files, *self.map.topics}, 0)
        self._tidied_ms = self._clock.now_ms()
        if self._make_work is None:
            return
        self._work = self._make_work()
        self._tasks = [
            asyncio.create_task(
                repeat_rounds(self.copy_due, COPY_INTERVAL_S, _RETRY, self._note_round), name="copy-columns"
            ),
            asyncio.create_task(
                repeat_rounds(self.clean, CLEAN_INTERVAL_S, _RETRY, self._note_round), name="clean-columns"
            ),
        ]

    async def close(self) -> None:
        """End what is under way; the next start does it again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        work, self._work = self._work, None
        if work is not None:
            await work.close()

    @property
    def work(self) -> ColumnWork | None:
        """Who does the work, while this broker leads; None where there is nobody."""
        return self._work

    # Copying

    async def copy_due(self) -> bool:
        """Copy one file of each topic that has messages to copy, and tell tables; whether more may be due at once."""
        await self._objects.check_owner()
        uploaded, is_more = self._cold.uploaded_log_offset, False
        for name in self._find_topics():
            if not self._may_try(self._troubles, name):
                continue
            try:
                went_on = await self._copy_next(name, uploaded)
                self._troubles.pop(name, None)
            except Exception as error:  # noqa: BLE001 - the edge of a topic's copy: the others go on
                self._note(self._troubles, name, error)
                continue
            is_more |= went_on
            if not went_on or self._untold.get(name, 0) >= MAX_UNTOLD_FILES:
                await self._tell_table(name)
        return is_more

    def _find_topics(self) -> list[str]:
        declared = {topic.name for topic in self._topics.all() if topic.column_copy is not None}
        return sorted({*declared, *self.map.topics, *self._untold})

    def _may_try(self, troubles: dict[str, _Trouble], name: str) -> bool:
        trouble = troubles.get(name)
        return self._work is not None and (trouble is None or self._clock.now_ms() >= trouble.retry_ms)

    async def _copy_next(self, name: str, uploaded: int) -> bool:
        """Go one step on with a topic; whether there may be another one."""
        known = self.map.topics.get(name)
        if known is not None and known.is_deleted:
            await self._forget_table(name, known)
            return True
        begun = self.map.find_begun(name)
        if begun is not None:
            await self._copy(name, resume_file(self._cold, *begun))
            return True
        topic = self._topics.find(name)
        if topic is None or topic.column_copy is None or self._looked_at.get(name) == (uploaded, topic.column_copy):
            return False
        await self._accept(topic, topic.column_copy)
        if name not in self.map.topics:
            return False
        prefix = data_prefix(self._cluster, name, self._broker)
        following = next_file(self._cold, name, prefix, self.map.copied_until(name))
        if following is not None and any(following.key in keys for keys in self._deleted_now):
            return False
        if following is None:
            self._looked_at[name] = uploaded, topic.column_copy
            return False
        self._write([(following.key, following.row)])
        await self._copy(name, following)
        return True

    def check_change(self, present: TopicConfig | None, topic: TopicConfig) -> None:
        """Refuse a topic whose newly declared columns its copy would refuse later: COLUMNS_REFUSED."""
        declared = topic.column_copy
        if declared is None or self._check_columns is None or (present is not None and present.column_copy == declared):
            return
        known = self.map.topics.get(topic.name)
        self._check_columns(declared.columns, "" if known is None else known.columns)

    async def _accept(self, topic: TopicConfig, declared: ColumnAttributes) -> None:
        """Copy with the declared columns from now on, unless they are refused: then with those before, if any."""
        known = self.map.topics.get(topic.name)
        if known is not None and (known.columns, known.body_format) == (declared.columns, declared.body_format):
            self._refused.pop(topic.name, None)
            return
        if topic.name in self._refused and self._refused[topic.name][0] == declared:
            return
        assert self._work is not None
        accepted = "" if known is None else known.columns
        try:
            await self._work.check(declared.columns, declared.body_format, accepted)
        except MillstreamError as error:
            if error.name != "COLUMNS_REFUSED":
                raise
            _log.error("The topic %s is not copied as it declares: %s", topic.name, error)
            self._refused[topic.name] = declared, str(error)
            self._refusals += 1
            return
        self._refused.pop(topic.name, None)
        before = known or ColumnTopic(copied_until=self.map.copied_until(topic.name))
        row = msgspec.structs.replace(before, columns=declared.columns, body_format=declared.body_format)
        self._write([(topic.name, row)])

    async def _copy(self, name: str, file: NextFile) -> None:
        assert self._work is not None
        known, trouble = self.map.topics[name], self._troubles.get(name)
        passes_damage = trouble is not None and trouble.is_damage and trouble.failures >= MAX_DAMAGED_READS
        request = CopyRequest(
            name, self._broker, known.columns, known.body_format, file.key, file.parts, passes_damage=passes_damage
        )
        held = await self._work.copy(request)
        if self.map.find_begun(name) != (file.key, file.row):
            # The topic was deleted meanwhile, and the file waits for its deletion.
            return
        if held.rows:
            self._write([(file.key, msgspec.structs.replace(file.row, held=held))])
            self._untold[name] = self._untold.get(name, 0) + 1
        else:
            lost = known.lost + held.lost
            done = msgspec.structs.replace(self.map.topics[name], copied_until=file.row.log_end, lost=lost)
            self._write([(name, done), (file.key, None)])

    async def _tell_table(self, name: str) -> None:
        """Have the table hold the files that there are, unless it was told. A table that fails holds up no copy."""
        if name not in self._untold or not self._may_try(self._table_troubles, name):
            return
        assert self._work is not None
        told, known, keys = self._untold.pop(name), self.map.topics.get(name), list(self.map.present(name))
        is_empty = not keys and not any(one.topic == name for _, one, _ in self.map.list_removed())
        if known is None or not known.columns or not self._work.keeps_tables or is_empty:
            return
        request = TableRequest(
            name, self._cluster, self._broker, known.columns, known.body_format, keys, self.map.next_offsets(name)
        )
        try:
            await self._work.keep_table(request)
            self._table_troubles.pop(name, None)
        except BaseException as error:
            self._untold[name] = self._untold.get(name, 0) + told
            if not isinstance(error, Exception):
                raise
            self._note(self._table_troubles, name, error)

    async def _forget_table(self, name: str, known: ColumnTopic) -> None:
        assert self._work is not None
        if self._work.keeps_tables:
            await self._work.drop_table(self._cluster, name)
        self._untold.pop(name, None)
        is_there = self._topics.find(name) is not None
        self._write([(name, ColumnTopic(copied_until=known.copied_until) if is_there else None)])

    # Going

    async def clean(self) -> bool:
        """Remove files that are too old, and delete those that were removed before; whether more may be due at once."""
        await self._objects.check_owner()
        now_ms = self._clock.now_ms()
        keep_ms = {
            topic.name: now_ms - topic.time_to_live_ms
            for topic in self._topics.all()
            if topic.time_to_live_ms is not None
        }
        expired = self.map.find_expired(keep_ms, now_ms - self._keep_hours * _HOUR_MS)
        self._write([(key, msgspec.structs.replace(one, removed_ms=now_ms)) for key, one in expired.items()])
        for one in expired.values():
            self._untold.setdefault(one.topic, 0)
        if self._state.settle():
            # What a replica might take back must not cost files that its tables would lead to.
            await self._delete_removed(now_ms - REMOVED_GRACE_MS)
        if now_ms - self._tidied_ms >= TIDY_INTERVAL_MS:
            self._tidied_ms = now_ms
            await self._tidy(now_ms - REMOVED_GRACE_MS)
        return False

    async def _delete_removed(self, before_ms: int) -> None:
        """What a table may still have stays."""
        due = [
            (key, one)
            for key, one, removed_ms in self.map.list_removed()
            if removed_ms < before_ms and one.topic not in self._untold
        ]
        for start in range(0, len(due), MAX_DELETED_KEYS):
            some = due[start : start + MAX_DELETED_KEYS]
            await self._objects.delete_objects([key for key, _ in some])
            # What was copied must not be copied again: the chunks may be there longer than the files.
            until = {one.topic: self.map.copied_until(one.topic) for _, one in some if one.topic in self.map.topics}
            topics: list[tuple[str, ColumnRow | None]] = [
                (name, msgspec.structs.replace(self.map.topics[name], copied_until=end)) for name, end in until.items()
            ]
            self._write([*topics, *((key, None) for key, _ in some)])

    async def _tidy(self, before_ms: int) -> None:
        assert self._work is not None
        for name in list(self.map.topics):
            if self._work.keeps_tables:
                self._untold.setdefault(name, 0)
                try:
                    await self._work.tidy_table(self._cluster, name, before_ms)
                except Exception as error:  # noqa: BLE001 - the edge of a topic's table: the others go on
                    self._note(self._table_troubles, name, error)

    @contextmanager
    def without_copies_to(self, keys: Iterable[str]) -> Iterator[list[str]]:
        """Those of the keys that no row names; within the block none of them is begun, so all may be deleted."""
        known = {key for files in self.map.files.values() for key in files}
        free = [key for key in keys if key not in known]
        deleted = frozenset(free)
        self._deleted_now.append(deleted)
        try:
            yield free
        finally:
            self._deleted_now.remove(deleted)

    def forget_topic(self, name: str) -> None:
        """The topic is deleted: its table and its files go, and a new topic of its name has none of them."""
        now_ms = self._clock.now_ms()
        rows: list[tuple[str, ColumnRow | None]] = [
            (key, msgspec.structs.replace(one, removed_ms=now_ms))
            for key, one in self.map.files.get(name, {}).items()
            if one.removed_ms is None
        ]
        if name in self.map.topics:
            rows.append((name, ColumnTopic(copied_until=self.map.copied_until(name), is_deleted=True)))
            self._untold.setdefault(name, 0)
        self._write(rows)
        self._refused.pop(name, None)
        self._looked_at.pop(name, None)

    # How it fares

    def report(self) -> ColumnReport:
        """How much was copied, and what went wrong."""
        held = [one.held for name in self.map.files for one in self.map.present(name).values() if one.held is not None]
        return ColumnReport(
            len(held),
            sum(one.size_bytes for one in held),
            sum(one.rows for one in held),
            sum(one.malformed for one in held),
            sum(one.lost for one in held) + sum(one.lost for one in self.map.topics.values()),
            sum(1 for _ in self.map.list_removed()),
            self._refusals,
            self._errors,
        )

    def status(self) -> list[ColumnStatus]:
        """How the copy of each topic fares that has one, or that declares one."""
        declared = {topic.name: topic.column_copy for topic in self._topics.all() if topic.column_copy is not None}
        return [self._status_of(name, declared.get(name)) for name in sorted({*declared, *self.map.topics})]

    def _status_of(self, name: str, declared: ColumnAttributes | None) -> ColumnStatus:
        held = [one.held for one in self.map.present(name).values() if one.held is not None]
        words = ""
        if self._make_work is None and declared is not None:
            words = "This broker copies nothing: it has no object store of its own to copy to."
        if name in self._refused:
            words = self._refused[name][1]
        for troubles in (self._table_troubles, self._troubles):
            if name in troubles:
                words = troubles[name].words
        known = self.map.topics.get(name, ColumnTopic())
        return ColumnStatus(
            name,
            len(held),
            sum(one.rows for one in held),
            sum(one.malformed for one in held),
            sum(one.lost for one in held) + known.lost,
            sum(one.size_bytes for one in held),
            is_table=self._work is not None and self._work.keeps_tables,
            columns=known.columns,
            problem=words,
        )

    def _note(self, troubles: dict[str, _Trouble], name: str, error: Exception) -> None:
        known, explained = troubles.get(name), explain_error(error)
        failures = 1 if known is None else known.failures + 1
        if known is None or known.words != str(explained):
            _log.error("The copy of the topic %s failed and will be tried again: %s", name, trace_error(error))
        wait_ms = int(_RETRY.wait_s(failures - 1) * _MS)
        is_damage = explained.name == "CHUNK_DAMAGED"
        troubles[name] = _Trouble(failures, str(explained), is_damage, self._clock.now_ms() + wait_ms)
        self._errors += 1

    def _note_round(self, _error: MillstreamError, words: str) -> None:
        if words:
            _log.error("The copies of cold topics failed and will be tried again: %s", words)
        self._errors += 1
