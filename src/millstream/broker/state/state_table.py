"""One kind of broker state: its document, and its changes in the state log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from millstream.broker.state.document import Document, SavedDocument, encode_document
from millstream.broker.state.state_log import ChangeLog, StateChange
from millstream.model.errors import StoreError

__all__ = ["StateOwner", "StateTable"]


D = TypeVar("D", bound=Document)
V = TypeVar("V")
V_in = TypeVar("V_in", contravariant=True)


class StateOwner(Protocol[D, V_in]):
    """Who holds the state in memory."""

    def make_document(self) -> D:
        """All of the state, to be saved."""

    def load_document(self, document: D) -> None:
        """Take up what a document says; called once, before any change."""

    def apply_change(self, key: str, value: V_in | None) -> None:
        """Take up one change that was written before: the key's new value, None where the key is gone."""


class StateTable(Generic[D, V]):
    """The saved form of one kind of state.

    `write` is called before the owner changes what it has in memory: a change that could not be written is not there,
    so it does not vanish with a restart. `kind` names the changes in the log and is part of the stored format. A large
    table gives `encode_in_turns`, the text of its document made beside other work.
    """

    def __init__(
        self,
        kind: str,
        saved: SavedDocument[D],
        value_type: type[V],
        owner: StateOwner[D, V],
        *,
        encode_in_turns: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self.kind = kind
        self._saved = saved
        self._decode = msgspec.json.Decoder(value_type).decode
        self._owner = owner
        self._encode_in_turns = encode_in_turns
        self._log: ChangeLog | None = None
        self.is_unsaved = False
        """Whether there is a change that the document on the disk lacks."""

    def bind(self, log: ChangeLog) -> None:
        """Write changes to this log from now on."""
        self._log = log

    def load(self) -> None:
        """Read the document, if there is one. Raises STORE_FORMAT."""
        document = self._saved.load()
        if document is not None:
            self._owner.load_document(document)

    def apply(self, changes: Iterable[StateChange]) -> None:
        """Take up changes of this kind that are in the log and not in the document. Raises STORE_FORMAT."""
        for change in changes:
            try:
                value = None if change.is_removal else self._decode(change.value)
            except msgspec.DecodeError as error:
                words = f"The change of {self.kind} {change.key[:200]!r} in the state log cannot be read: {error}."
                raise StoreError("STORE_FORMAT", words) from None
            self._owner.apply_change(change.key, value)
            self.is_unsaved = True

    def write(self, key: str, value: V | None, *, durable: bool = True) -> None:
        """Write one change; on the disk when this returns if `durable`. Raises STORE_FAILED, DISK_FULL."""
        self.write_all([(key, value)], durable=durable)

    def write_all(self, changes: Iterable[tuple[str, V | None]], *, durable: bool = True) -> None:
        """As `write`, for several changes."""
        assert self._log is not None, f"{self.kind}: the state log is not bound"
        encoded = [StateChange(self.kind, key, msgspec.Raw(msgspec.json.encode(value))) for key, value in changes]
        if encoded:
            self._log.append(encoded, durable=durable)
            self.is_unsaved = True

    async def encode(self) -> bytes:
        """The text of the document as it is now, or a little later where it is made in turns."""
        if self._encode_in_turns is not None:
            return await self._encode_in_turns()
        return encode_document(self._owner.make_document())

    def save_text(self, text: bytes) -> None:
        """Put what `encode` gave on the disk. May run in another thread. Raises STORE_FAILED, DISK_FULL."""
        self._saved.save_text(text)

    def save(self) -> None:
        """Save the document if there was a change since the last save. Raises STORE_FAILED, DISK_FULL."""
        if self.is_unsaved:
            self._saved.save(self._owner.make_document())
            self.is_unsaved = False
