"""The two ways to the broker: ordinary messages in batch requests, or Arrow batches of the bulk lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from millstream.client.client import Client
from millstream.client.producer import Producer
from millstream.ingest.event_batch import EventBatch
from millstream.model.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BulkLane", "Lane", "RecordLane"]


class Lane(Protocol):
    """Stores parcels in a topic; returns when all are acknowledged, raises MillstreamError otherwise."""

    max_rows: int
    """Events of one call at most."""

    async def send(self, topic: str, parcels: Sequence[EventBatch]) -> None: ...


class RecordLane:
    """Each event is a message of its own; any topic of type normal takes them."""

    max_rows: int = 2000

    def __init__(self, client: Client) -> None:
        self._producer = Producer(client)

    async def send(self, topic: str, parcels: Sequence[EventBatch]) -> None:
        """Store the events; a batch that fails in part is told as failed, and what was stored stays."""
        await self._producer.send_many([message for parcel in parcels for message in _messages(topic, parcel)])


def _messages(topic: str, parcel: EventBatch) -> list[Message]:
    keys: Sequence[str | None] = parcel.keys or [None] * len(parcel.bodies)
    tags: Sequence[str | None] = parcel.tags or [None] * len(parcel.bodies)
    return [
        Message(topic, body, tag, (key,) if key else (), None, parcel.properties(place))
        for place, (body, key, tag) in enumerate(zip(parcel.bodies, keys, tags, strict=True))
    ]


class BulkLane:
    """Events become rows of Arrow batches; the topic has to take bulk messages. Needs `millstream[bulk]`."""

    max_rows: int = 10_000

    def __init__(self, client: Client) -> None:
        from millstream.client.bulk.producer import BulkProducer

        self._producer = BulkProducer(client)

    async def send(self, topic: str, parcels: Sequence[EventBatch]) -> None:
        """Store the events; the rows of one bulk message are stored together or not at all."""
        await self._producer.send_batch(topic, _rows(parcels))


_NAMES: Final = ("body", "key", "tag", "properties")


def _rows(parcels: Sequence[EventBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    from millstream.client.bulk.encoding import COLUMNS
    from millstream.client.bulk.gathering import encode_user_properties

    columns: dict[str, list[bytes] | list[str | None]] = {}
    columns["body"] = [body for parcel in parcels for body in parcel.bodies]
    if any(parcel.keys for parcel in parcels):
        columns["key"] = [key for one in parcels for key in one.keys or [None] * len(one.bodies)]
    if any(parcel.tags for parcel in parcels):
        columns["tag"] = [tag for one in parcels for tag in one.tags or [None] * len(one.bodies)]
    if any(parcel.shared or parcel.own for parcel in parcels):
        texts: list[str | None] = []
        for parcel in parcels:
            shared = encode_user_properties(None, None, parcel.shared)
            rows = [shared] * len(parcel.bodies)
            for place in parcel.own:
                rows[place] = encode_user_properties(None, None, parcel.properties(place))
            texts += rows
        columns["properties"] = texts
    return pa.record_batch({name: pa.array(columns[name], COLUMNS[name]) for name in _NAMES if name in columns})
