"""A versioned JSON document in a snapshot: the saved form of topics, groups and offsets."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from millstream.model.errors import StoreError
from millstream.store.files import refusal_name
from millstream.store.snapshot import Snapshot

__all__ = ["Document", "SavedDocument", "encode_document"]

_MAX_FORMATTED_BYTES = 256 * 1024
"""Longer documents stay on one line: laying them out takes longer than making them."""


class Document(msgspec.Struct, kw_only=True):
    """What every saved document carries; a reader refuses a version that it does not know."""

    version: int


D = TypeVar("D", bound=Document)


class SavedDocument(Generic[D]):
    """One document of type `kind` and of one version; `noun` names it in errors, as in "topics".

    Saving raises STORE_FAILED, DISK_FULL or FILE_NOT_OPENED, loading STORE_FORMAT.
    """

    def __init__(self, snapshot: Snapshot, kind: type[D], *, noun: str, version: int) -> None:
        self._snapshot = snapshot
        self._decoder = msgspec.json.Decoder(kind)
        self._noun = noun
        self._version = version

    def load(self) -> D | None:
        """The document, or None if none was ever saved."""
        saved = self._snapshot.load()
        if saved is None:
            return None
        try:
            document = self._decoder.decode(saved)
        except msgspec.DecodeError as error:
            raise StoreError("STORE_FORMAT", f"The saved {self._noun} cannot be read: {error}.") from None
        if document.version != self._version:
            raise StoreError(
                "STORE_FORMAT", f"The saved {self._noun} are of version {document.version}, not {self._version}."
            )
        return document

    def save(self, document: D) -> None:
        """Replace the document; it is on the disk when this returns."""
        self.save_text(encode_document(document))

    def save_text(self, text: bytes) -> None:
        """Replace the document by one that is encoded already. May run in another thread."""
        try:
            self._snapshot.save(text)
        except OSError as error:
            name = refusal_name(error, "STORE_FAILED")
            raise StoreError(name, f"The {self._noun} cannot be saved: {error}.") from error


def encode_document(document: Document) -> bytes:
    """The text of a document, one value a line where it is short enough for a person to read."""
    text = msgspec.json.encode(document)
    return msgspec.json.format(text, indent=1) if len(text) <= _MAX_FORMATTED_BYTES else text
