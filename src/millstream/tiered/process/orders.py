"""What a broker orders of its cold process, and what that answers: heads of frames."""

from __future__ import annotations

from typing import Final

import msgspec

from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import MillstreamError, StoreError
from millstream.store.log.log_walk import LogFiles
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.cold_map import ColdObject, ColdPart, ColdStretch
from millstream.tiered.cold_work import GatheredPart, StretchName
from millstream.tiered.merging import ObjectUnreadable
from millstream.tiered.objects import (
    ObjectExists,
    ObjectNotFound,
    ObjectStoreAway,
    ObjectStoreDenied,
)

__all__ = [
    "ANSWERS",
    "ORDERS",
    "Answer",
    "BlockIsRead",
    "FindRecord",
    "GatherLog",
    "GatheredLog",
    "MergeObjects",
    "ObjectIsPut",
    "ObjectsArePut",
    "Order",
    "PartsArePut",
    "Progress",
    "PutObjects",
    "ReadBlock",
    "RecordIsFound",
    "WorkGoesOn",
    "WorkRefused",
    "encode_head",
]


class ReadBlock(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """See `ColdWork.read_block`; so with the others."""

    key: str
    info: BlockInfo


class FindRecord(msgspec.Struct, frozen=True, array_like=True, tag="find"):
    """Find the record of a log offset."""

    key: str
    infos: tuple[BlockInfo, ...]
    log_offset: int


class GatherLog(msgspec.Struct, frozen=True, array_like=True, tag="gather"):
    """Read a part of the log from its files."""

    files: LogFiles
    first_of: dict[str, int]
    max_bytes: int


class PutObjects(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """Put what was gathered."""

    name: StretchName
    row: ColdStretch
    class_of: dict[str, int]


class MergeObjects(msgspec.Struct, frozen=True, array_like=True, tag="merge"):
    """Put the messages of objects into new ones."""

    name: StretchName
    row: ColdStretch
    sources: tuple[ColdObject, ...]
    class_of: dict[str, int]


Order = ReadBlock | FindRecord | GatherLog | PutObjects | MergeObjects


class BlockIsRead(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """The body has the block, of so many bytes, and then the places of its records."""

    raw_bytes: int


class RecordIsFound(msgspec.Struct, frozen=True, array_like=True, tag="found"):
    """The body is the record; empty where there is none."""


class GatheredLog(msgspec.Struct, frozen=True, array_like=True, tag="gathered"):
    """A part of the log is ready to be put."""

    gathered: GatheredPart


class ObjectsArePut(msgspec.Struct, frozen=True, array_like=True, tag="put"):
    """All objects are there; what they are was told one by one."""


class PartsArePut(msgspec.Struct, frozen=True, array_like=True, tag="parts"):
    """Some parts of the object that is told of next: not all of thousands in one frame, which would hold the loop."""

    parts: tuple[ColdPart, ...]


class ObjectIsPut(msgspec.Struct, frozen=True, array_like=True, tag="object"):
    """One more object is there, with the last of its parts."""

    one: ColdObject


class WorkGoesOn(msgspec.Struct, frozen=True, array_like=True, tag="on"):
    """The work comes forward; what it has read since this was said last."""

    requests: int
    bytes_read: int


class WorkRefused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The order failed, as a row of the catalogue of errors; `key` is the object that cannot be read in a merge."""

    name: str
    message: str
    remedy: str | None = None
    key: str | None = None

    def error(self) -> MillstreamError:
        """The error that it tells of, of the class that it had there."""
        if self.name not in CATALOGUE:
            return MillstreamError("INTERNAL_ERROR", f"The process for cold messages says {self.name}: {self.message}")
        kind = _KINDS.get(self.name, StoreError)
        error = kind.__new__(kind)
        MillstreamError.__init__(error, self.name, self.message, remedy=self.remedy)
        return error if self.key is None else ObjectUnreadable(self.key, error)


Progress = PartsArePut | ObjectIsPut | WorkGoesOn
"""What is said before the answer, under the same number."""

Answer = BlockIsRead | RecordIsFound | GatheredLog | ObjectsArePut | WorkRefused

_KINDS: Final[dict[str, type[MillstreamError]]] = {
    "OBJECT_NOT_FOUND": ObjectNotFound,
    "OBJECT_EXISTS": ObjectExists,
    "OBJECT_STORE_DENIED": ObjectStoreDenied,
    "OBJECT_STORE_AWAY": ObjectStoreAway,
}
"""Classes that callers tell apart; what else a catalogue has is an error of the log here."""

ORDERS: Final[msgspec.msgpack.Decoder[Order]] = msgspec.msgpack.Decoder(Order)
ANSWERS: Final[msgspec.msgpack.Decoder[Answer | Progress]] = msgspec.msgpack.Decoder(Answer | Progress)

encode_head = msgspec.msgpack.encode
"""The head of an order or of an answer."""
