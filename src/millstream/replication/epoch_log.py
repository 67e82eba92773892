"""The log of one replica together with its epochs.

    epochs          in the store's directory: the starts of the log's epochs, a checksummed document

An epoch is noted before its first byte is written. What a crash took of the log is taken from the list by the next
start, so the list never says more than the log has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from millstream.model.errors import StoreError
from millstream.model.message import OutgoingMessage
from millstream.replication.epoch_list import EpochList, EpochStart
from millstream.store.files import FileLayer, refusal_name
from millstream.store.log_chunk import LogChunk
from millstream.store.message_store import MessageStore, PendingRecord
from millstream.store.snapshot import Snapshot

__all__ = ["EPOCHS", "EPOCH_TOPIC", "EpochChunk", "EpochLog", "EpochRecord", "load_epochs", "save_epochs"]

EPOCHS: Final = "epochs"
"""The document in the directory of a store."""

EPOCH_TOPIC: Final = "rmq_sys_MILLSTREAM_EPOCH"
"""The system topic with the first record of each epoch."""

_VERSION: Final = 1
_QUEUE: Final = 0


class _Document(msgspec.Struct):
    version: int
    starts: list[tuple[int, int]]


class EpochRecord(msgspec.Struct):
    """The body of the first record that a master writes."""

    epoch: int
    previous_epoch: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class EpochChunk:
    """Records of one epoch. `epoch` is None for what was written before the first one."""

    chunk: LogChunk
    epoch: EpochStart | None


class EpochLog:
    """Reads, writes and cuts nothing by itself; calls come from one thread. `directory` is that of the store."""

    def __init__(self, store: MessageStore, directory: Path, files: FileLayer | None = None) -> None:
        self.store = store
        self._snapshot = Snapshot(directory / EPOCHS, files or FileLayer())
        noted = load_epochs(directory, files)
        self._epochs = noted.cut_suffix(self.end)
        if self._epochs != noted:
            self._save(self._epochs)

    @property
    def epochs(self) -> EpochList:
        """The starts of the log's epochs."""
        return self._epochs

    @property
    def start(self) -> int:
        """The log offset of the oldest byte."""
        return self.store.log_start

    @property
    def end(self) -> int:
        """The log offset behind the newest record, confirmed or not."""
        return self.store.written_log_offset

    def begin_epoch(self, epoch: int, broker_id: int) -> int:
        """Begin to write as the master of a new epoch; the log offset where that is.

        Raises ValueError unless the epoch is later than all before, and what writing raises.
        """
        start, epochs = self.end, self._epochs
        if epochs.epoch == epoch:
            # Begun already, by a try to become the master that did not end.
            return epochs.starts[-1].log_offset
        if not epochs.starts and start > self.start:
            # The directory was that of a broker without replicas: all that it has is older than every epoch.
            epochs = epochs.append(0, self.start)
        previous = epochs.epoch
        self._save(epochs.append(epoch, start))
        body = msgspec.json.encode(EpochRecord(epoch, previous, broker_id))
        message = OutgoingMessage(EPOCH_TOPIC, body, {}, born_host=self.store.options.store_host)
        self.store.put([PendingRecord(message, _QUEUE)], despite_watermark=True)
        return start

    def read(self, log_offset: int, max_bytes: int) -> EpochChunk:
        """What follows the log offset, up to `max_bytes` and to the end of its epoch; nothing at the log's end."""
        while True:
            at = self._epochs.at(log_offset)
            end = self.end if at is None else self._epochs.end_of(at.epoch, self.end)
            chunk = self.store.read_chunk(log_offset, max_bytes, end)
            if chunk.records or chunk.log_offset == log_offset or chunk.log_offset >= self.end:
                return EpochChunk(chunk, at)
            log_offset = chunk.log_offset

    def append(self, log_offset: int, records: bytes, epoch: EpochStart | None) -> None:
        """Append what the master's log has there, written in that epoch.

        Raises what `MessageStore.append_chunk` does, DISK_FULL and STORE_FAILED where a new epoch cannot be noted, and
        ValueError for one that does not follow.
        """
        if epoch is not None and epoch.epoch != self._epochs.epoch:
            self._save(self._epochs.append(*epoch))
        self.store.append_chunk(log_offset, records)

    def forget_epochs(self, log_end: int) -> None:
        """Forget the epochs that begin at the log's end or behind it: nothing was written in them."""
        self._save(self._epochs.cut_suffix(log_end))

    def _save(self, epochs: EpochList) -> None:
        try:
            _write(self._snapshot, epochs.starts)
        except OSError as error:
            name = refusal_name(error, "STORE_FAILED")
            raise StoreError(name, f"The epochs of the log cannot be saved: {error}.") from error
        self._epochs = epochs


def save_epochs(directory: Path, starts: Iterable[tuple[int, int]], files: FileLayer | None = None) -> None:
    """Note the epochs of a log that another replica has, before a store is opened that begins with its start."""
    _write(Snapshot(directory / EPOCHS, files or FileLayer()), starts)


def _write(snapshot: Snapshot, starts: Iterable[tuple[int, int]]) -> None:
    snapshot.save(msgspec.json.encode(_Document(_VERSION, [*starts])))


def load_epochs(directory: Path, files: FileLayer | None = None) -> EpochList:
    """The epochs that a store's directory notes, none if it was never replicated. Raises STORE_FORMAT."""
    text = Snapshot(directory / EPOCHS, files or FileLayer()).load()
    if text is None:
        return EpochList()
    try:
        document = msgspec.json.decode(text, type=_Document)
        if document.version != _VERSION:
            raise ValueError(f"version {document.version}, not {_VERSION}")
        return EpochList(tuple(EpochStart(*start) for start in document.starts))
    except (msgspec.DecodeError, ValueError) as error:
        raise StoreError("STORE_FORMAT", f"{directory / EPOCHS} cannot be read: {error}.") from None
