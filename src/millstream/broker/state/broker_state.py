"""All state of a broker: loaded from documents and the state log at startup, saved as documents from time to time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from millstream.broker.state.document import Document, SavedDocument
from millstream.broker.state.state_log import StateLog
from millstream.broker.state.state_table import StateTable
from millstream.model.errors import StoreError
from millstream.store.snapshot import Snapshot

__all__ = ["BrokerState"]

_VERSION: Final = 1

_log = logging.getLogger(__name__)


class _MarkDocument(Document):
    """The documents of all tables hold all changes below the state offset. They may hold later ones as well."""

    state_offset: int


class _NotConfirmedError(Exception):
    """Not all changes are confirmed yet; the documents are saved another time."""


class BrokerState:
    """The tables by kind, and up to which state offset their documents hold the changes.

    A change is a key's whole value, so applying one again that a document holds already changes nothing. Losing the
    mark therefore costs a longer start alone.
    """

    def __init__(self, mark: Snapshot) -> None:
        self._mark = SavedDocument(mark, _MarkDocument, noun="mark of the state", version=_VERSION)
        self._tables: dict[str, StateTable[Any, Any]] = {}
        self._passed_over: set[str] = set()
        self._saved_offset = 0
        self._applied_offset = 0
        self._log: StateLog | None = None

    @property
    def saved_offset(self) -> int:
        """The state offset below which all changes are in documents."""
        return self._saved_offset

    def add(self, *tables: StateTable[Any, Any]) -> None:
        """Have these tables; before `load`."""
        for table in tables:
            assert table.kind not in self._tables
            self._tables[table.kind] = table

    def pass_over(self, *kinds: str) -> None:
        """Know these kinds of changes, which mean nothing to a broker that has the whole log."""
        self._passed_over.update(kinds)

    def follow(self) -> None:
        """Apply the changes that became visible since the last call, as a replica does. Raises as `load` does."""
        assert self._log is not None
        self._apply_from(self._log, self._applied_offset)

    def load(self, log: StateLog) -> None:
        """Read the documents, apply the changes behind them, and write changes to the log from now on.

        Raises STORE_FORMAT where a document or a change cannot be read, RECORD_DAMAGED.
        """
        for table in self._tables.values():
            table.load()
        self._saved_offset = self._read_mark()
        if self._saved_offset > log.end:
            # Changes to come get these offsets, and the old mark would hide them from a later start.
            _log.warning("The state log ends before what was saved of it: %d, not %d.", log.end, self._saved_offset)
            self._save_mark(log.end)
        self._apply_from(log, max(self._saved_offset, log.start))
        self._log = log
        for table in self._tables.values():
            table.bind(log)

    def save(self) -> None:
        """Save the documents that changed, and the mark behind them; nothing while a change is not confirmed.

        A document must never hold a change that a truncation of the log could take back. Raises STORE_FAILED,
        DISK_FULL, FILE_NOT_OPENED.
        """
        log = self._log
        if log is None or log.end == self._saved_offset or not log.settle():
            return
        end = log.end
        for table in self._tables.values():
            table.save()
        self._save_mark(end)

    async def save_in_turns(self) -> None:
        """As `save`, beside other work."""
        log = self._log
        if log is None or log.end == self._saved_offset:
            return
        end = log.end
        unsaved = [table for table in self._tables.values() if table.is_unsaved]
        for table in unsaved:
            table.is_unsaved = False
        try:
            texts = [(table, await table.encode()) for table in unsaved]
            # Asked for afterwards: a document may hold changes that came while others were encoded.
            if not await asyncio.to_thread(log.settle):
                raise _NotConfirmedError
            for table, text in texts:
                await asyncio.to_thread(table.save_text, text)
            await asyncio.to_thread(self._save_mark, end)
        except BaseException as error:
            for table in unsaved:
                table.is_unsaved = True
            if not isinstance(error, _NotConfirmedError):
                raise

    def _save_mark(self, state_offset: int) -> None:
        self._mark.save(_MarkDocument(version=_VERSION, state_offset=state_offset))
        self._saved_offset = state_offset

    def _read_mark(self) -> int:
        try:
            mark = self._mark.load()
        except StoreError as error:
            _log.warning("All changes of the state are read again: %s", error)
            return 0
        return 0 if mark is None else mark.state_offset

    def _apply_from(self, log: StateLog, state_offset: int) -> None:
        self._applied_offset = max(state_offset, self._applied_offset)
        for found_offset, changes in log.changes_from(state_offset):
            for change in changes:
                table = self._tables.get(change.kind)
                if table is None and change.kind in self._passed_over:
                    continue
                if table is None:
                    words = (
                        f"The state log has changes of kind {change.kind[:100]!r}, which this version does not know."
                    )
                    raise StoreError("STORE_FORMAT", words, remedy="Start the version that wrote them, or a later one.")
                table.apply([change])
            self._applied_offset = found_offset + 1
