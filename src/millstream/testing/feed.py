"""What a test feeds its tables: messages in their order, cut into micro-batches, as a file that workers read."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from millstream.model import properties as names
from millstream.model.message import Address, OutgoingMessage
from millstream.model.properties import decode_properties, encode_properties
from millstream.protocol.record import encode_record

__all__ = ["FIRST_STORE_MS", "FedEntry", "FedMessage", "Feed", "encoded_row"]

FIRST_STORE_MS: Final = 1_767_225_600_000
"""Store and born time of the first message that names none: 2026-01-01 in UTC; each next one is a millisecond later."""

_TOPIC: Final = "fed"
_HOST: Final = Address("127.0.0.1", 1)


@dataclass(frozen=True, slots=True)
class FedMessage:
    """One message, where a test needs more than a row: `body` is the row as a dict, or the text as it is stored.

    `time_ms` is its born and store time; None: the next millisecond.
    """

    body: Mapping[str, Any] | str | bytes | None
    key: str = ""
    tag: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    time_ms: int | None = None


class FedEntry(msgspec.Struct, array_like=True):
    """One message as it travels. `is_tick`: it brings its event time and is no row."""

    queue: int
    offset: int
    time_ms: int
    body: bytes
    properties: bytes = b""
    is_tick: bool = False

    def record(self) -> memoryview:
        """As a record that was pulled."""
        told = decode_properties(self.properties)
        message = OutgoingMessage(_TOPIC, self.body, told, born_timestamp_ms=self.time_ms)
        record = encode_record(
            message,
            queue_id=self.queue,
            queue_offset=self.offset,
            log_offset=0,
            store_timestamp_ms=self.time_ms,
            store_host=_HOST,
        )
        return memoryview(record)


class Feed(msgspec.Struct):
    """The entries of one table, and of each micro-batch where it ends: the next offset of each queue.

    `nows_us` are the processing times of the micro-batches, where the test says them.
    """

    entries: dict[int, list[FedEntry]] = {}
    ends: list[dict[int, int]] = []
    nows_us: list[int | None] = []

    def add(self, queue: int, message: FedMessage, time_ms: int, *, is_tick: bool = False) -> None:
        """A message behind the others of its queue."""
        body = message.body if isinstance(message.body, bytes) else encoded_row(message.body)
        told = dict(message.properties)
        if message.key:
            told[names.KEYS] = message.key
        if message.tag:
            told[names.TAGS] = message.tag
        here = self.entries.setdefault(queue, [])
        here.append(FedEntry(queue, len(here), time_ms, body, encode_properties(told), is_tick))

    def cut(self, now_us: int | None = None) -> None:
        """End the micro-batch here; one without rows is one all the same."""
        self.ends.append(self.offsets())
        self.nows_us.append(now_us)

    def offsets(self) -> dict[int, int]:
        """Behind the last entry of each queue."""
        return {queue: len(entries) for queue, entries in self.entries.items()}

    def write(self, path: Path) -> None:
        """Leave everything in `path`, whole or not at all."""
        unfinished = path.with_name(f".{path.name}")
        unfinished.write_bytes(msgspec.msgpack.encode(self))
        unfinished.replace(path)

    @classmethod
    def read(cls, path: str) -> Feed:
        """What `write` left."""
        return msgspec.msgpack.decode(Path(path).read_bytes(), type=cls)


def encoded_row(body: Mapping[str, Any] | str | None) -> bytes:
    """A row as JSON, a text as UTF-8, nothing as an empty body. Times stand as SQL writes them."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    return msgspec.json.encode({name: _plain(value) for name, value in body.items()})


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime():
            moment = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return f"{moment.isoformat(' ')}{'Z' if value.tzinfo else ''}"
        case decimal.Decimal():
            return str(value)
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return value
