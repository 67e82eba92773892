"""Adds index entries for light queues to new records, by routes stored in a topic of the broker's log.

The table is that of all records of the topic that were taken in, in their order. A record counts in the turn in which
it is written. After a start, and where this replica has become the master, those that readers may see are read; what
of the topic is not confirmed yet is taken in once it is, and what is written behind it with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from millstream.broker.queues.light_copies import dispatch_record, have_room
from millstream.model.errors import MillstreamError, StoreError
from millstream.model.message import OutgoingMessage
from millstream.model.properties import KEYS
from millstream.model.routing.routes import LightQueueConfig, RouteBinding
from millstream.model.routing.routing_table import RoutingTable
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.protocol.changelog import ChangelogDecoder
from millstream.protocol.record_encoder import PlainRecord
from millstream.protocol.route_records import RouteRecord, decode_route
from millstream.store.consume_queue import IndexEntry
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import AppendedRecord, PendingRecord

__all__ = ["RouteDispatcher"]

_QUEUE: Final = 0
_READ_AT_ONCE: Final = 256

_CHECKED: Final = 1024
_CHECKED_BYTES: Final = 1024
"""Routes that were checked and are not read again when they are taken in, in the next turn, and bytes of one: 2 MB."""

_log = logging.getLogger(__name__)


class RouteDispatcher:
    """The routes of one store, as its `Appender` asks for them.

    `on_removed` is called with the name of a light queue that was taken back, its configuration and the ids of the
    bindings that it still had.
    """

    def __init__(self, store: MessageStore) -> None:
        self.table = RoutingTable(watched=(ROUTES_TOPIC,))
        self.topics: Container[str] = self.table.topics
        self.choose: Callable[[tuple[str, ...], Mapping[str, str]], tuple[str, ...]] = lambda names, _properties: names
        """Called with the light queues that want a message, and its properties: those that may have it."""
        self.on_removed: Callable[[str, LightQueueConfig, list[str]], None] = lambda _name, _config, _bindings: None
        self._store = store
        self._next_offset = 0
        self._decode = lru_cache(maxsize=_CHECKED)(decode_route)

    @property
    def is_complete(self) -> bool:
        """Whether all routes of the log are taken in: some may not be confirmed yet."""
        return self._next_offset >= self._store.written_offset(ROUTES_TOPIC, _QUEUE)

    def follow(self, max_records: int | None = None) -> None:
        """Take in the routes that readers may see and that are not taken in yet, or about so many of them."""
        read = 0
        while self._next_offset < self._store.max_offset(ROUTES_TOPIC, _QUEUE):
            if max_records is not None and read >= max_records:
                return
            entries = self._store.entries(ROUTES_TOPIC, _QUEUE, self._next_offset, _READ_AT_ONCE)
            if not entries:
                # Compaction has left nothing up to the end.
                self._next_offset = self._store.max_offset(ROUTES_TOPIC, _QUEUE)
                return
            read += len(entries)
            # There may be a million: only what a change needs is taken out of a record.
            for change in ChangelogDecoder().changes(self._read_records(entries)):
                self._take_in(str(change.key, "utf-8", "replace"), b"" if change.value is None else bytes(change.value))
            self._next_offset = entries[-1].queue_offset + 1

    def _read_records(self, entries: Sequence[IndexEntry]) -> Iterator[memoryview]:
        for entry in entries:
            try:
                yield memoryview(self._store.read(entry))
            except StoreError as error:
                _log.error("A route at offset %d is lost: %s", entry.queue_offset, error)

    def check(self, messages: Sequence[OutgoingMessage]) -> list[RouteRecord]:
        """What records for the topic of the routes say. Raises ILLEGAL_ROUTE, LIGHT_QUEUE_QUOTA_EXCEEDED."""
        records = [self._read(message.properties.get(KEYS, ""), message.body) for message in messages]
        queues = bindings = 0
        for record in records:
            if isinstance(record.value, LightQueueConfig):
                queues += self.table.find(record.name) is None
            elif record.value is not None:
                bindings += record.binding_id not in self.table.binding_ids(record.name)
        self.table.check_room(queues, bindings)
        return records

    def dispatch(self, record: PendingRecord) -> list[PendingRecord]:
        """See `Dispatcher`. A record that holds a batch has no place in light queues, whose readers take messages."""
        message = record.message
        if record.batch_count is not None:
            return [record]
        light_queues = self._match(message.topic, message.properties)
        return dispatch_record(record, light_queues) if light_queues else [record._replace(light_queues=())]

    def dispatch_plain(self, record: PlainRecord) -> bool:
        """See `Dispatcher`."""
        light_queues = self._match(record.topic, record.properties)
        if light_queues and not have_room(len(record.stored_properties), light_queues):
            return False
        record.light_queues = light_queues
        return True

    def _match(self, topic: str, properties: Mapping[str, str]) -> tuple[str, ...]:
        light_queues = self.table.match(topic, properties)
        return self.choose(light_queues, properties) if light_queues and self.table.bounded else light_queues

    def note_stored(self, record: PendingRecord, place: AppendedRecord) -> None:
        """See `Dispatcher`."""
        message = record.message
        if message.topic == ROUTES_TOPIC and place.queue_offset == self._next_offset:
            self._next_offset += 1
            self._take_in(message.properties.get(KEYS, ""), message.body)

    def _read(self, key: str, body: bytes) -> RouteRecord:
        return self._decode(key, body) if len(body) <= _CHECKED_BYTES else decode_route(key, body)

    def _take_in(self, key: str, body: bytes) -> None:
        try:
            record = self._read(key, body)
        except MillstreamError as error:
            _log.error("A route is passed over: %s", error)
            return
        table, value = self.table, record.value
        if record.binding_id is not None:
            if isinstance(value, RouteBinding):
                table.bind(record.name, record.binding_id, value)
            else:
                table.unbind(record.name, record.binding_id)
        elif isinstance(value, LightQueueConfig):
            table.declare(record.name, value)
        else:
            config, binding_ids = table.find(record.name), table.binding_ids(record.name)
            table.remove(record.name)
            if config is not None:
                self.on_removed(record.name, config, binding_ids)
