"""Connected clients: their groups, open streams and last heartbeats. Time is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.model.errors import ConsumeRefused

__all__ = [
    "CLIENT_EXPIRY_S",
    "MAX_CLIENTS",
    "MAX_NAMES",
    "MAX_NAMES_PER_CLIENT",
    "MAX_STREAMS_PER_CLIENT",
    "PRODUCER",
    "STREAM_GRACE_S",
    "ClientRecord",
    "ClientTable",
]

CLIENT_EXPIRY_S = 120.0
"""A client that is silent for so long counts as gone, even if a stream of it seems open."""

STREAM_GRACE_S = 15.0
"""The same for a client whose last stream broke. Clients send heartbeats every 10 s, consumers ask for assignments
every 5 s, and the Python client opens a broken stream again only after minutes."""

MAX_CLIENTS = 100_000
"""Clients in the table at most. At the limit those that never sent their settings make room for others."""

MAX_NAMES_PER_CLIENT = 1_024
"""Topics and groups that one client may name at most."""

MAX_NAMES = 1_000_000
"""Topics and groups that all clients together may name at most."""

MAX_STREAMS_PER_CLIENT = 16
"""Telemetry streams of one client at most; it needs one, and one more while it finds out that the first broke."""


PRODUCER = "PRODUCER"
"""The kind of clients that send."""


@dataclass(slots=True)
class ClientRecord:
    """One client. Times are of the monotonic clock, in seconds; `stream_lost_s` is set while no stream is open."""

    client_id: str
    last_seen_s: float
    owner: str = ""
    """The user who speaks for it; blank where access control is off."""
    kind: str = ""
    groups: set[str] = field(default_factory=set)
    language: str = ""
    version: str = ""
    topics: frozenset[str] = frozenset()
    streams: int = 0
    stream_lost_s: float | None = None

    @property
    def names(self) -> int:
        """How many topics and groups the client has named."""
        return len(self.groups) + len(self.topics)

    def is_gone(self, now_s: float) -> bool:
        """Whether nothing speaks for the client being alive any more."""
        if self.stream_lost_s is not None:
            return now_s - max(self.stream_lost_s, self.last_seen_s) >= STREAM_GRACE_S
        return now_s - self.last_seen_s >= CLIENT_EXPIRY_S


class ClientTable:
    """The clients of one proxy, at most `capacity`; TOO_MANY_REQUESTS refuses further ones."""

    def __init__(self, capacity: int = MAX_CLIENTS) -> None:
        self._capacity = capacity
        self._records: dict[str, ClientRecord] = {}
        self._producers: dict[str, dict[str, None]] = {}
        self._strangers: dict[str, None] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._records)

    def note_alive(self, client_id: str, now_s: float, owner: str = "") -> ClientRecord:
        """The client's record, made if it is new; it counts as alive from now on.

        It belongs to the user `owner` from the first call on that names one.
        """
        record = self._records.get(client_id)
        if record is None:
            self._make_room()
            self._strangers[client_id] = None
            record = self._records[client_id] = ClientRecord(client_id, now_s)
        record.last_seen_s = now_s
        if owner and not record.owner:
            record.owner = owner
        return record

    def name_agent(self, client_id: str, language: str, version: str) -> None:
        """Note which library a client uses, as far as it says so; nothing if the client is not there."""
        record = self._records.get(client_id)
        if record is not None:
            record.language, record.version = language, version

    def find(self, client_id: str) -> ClientRecord | None:
        """The record of a client, or None."""
        return self._records.get(client_id)

    def owner(self, client_id: str) -> str:
        """The user who speaks for a client; blank where there is none."""
        record = self._records.get(client_id)
        return "" if record is None else record.owner

    def all(self) -> list[ClientRecord]:
        """Every client, in the order in which they came."""
        return list(self._records.values())

    def members(self, group: str) -> list[tuple[str, str, str, int, str]]:
        """The consumers of a group: client id, address, language, version and protocol, as far as they are known."""
        found = [record for record in self._records.values() if group in record.groups]
        return [(record.client_id, "", "OTHER", 0, f"gRPC {record.kind}".strip()) for record in found]

    def declare(self, record: ClientRecord, kind: str, topics: frozenset[str], group: str = "") -> None:
        """What the client says that it is; no kind or topics leave those that it named before, groups come together.

        TOO_MANY_REQUESTS over MAX_NAMES_PER_CLIENT or MAX_NAMES.
        """
        topics = topics or record.topics
        groups = record.groups | {group} if group else record.groups
        wanted = len(groups) + len(topics)
        more = wanted - record.names
        if more > 0 and (wanted > MAX_NAMES_PER_CLIENT or self._names + more > MAX_NAMES):
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS",
                f"The client {record.client_id[:80]!r} names {wanted} topics and groups, all clients "
                f"{self._names + more}; the limits are {MAX_NAMES_PER_CLIENT} and {MAX_NAMES}.",
            )
        self._names += more
        self._strangers.pop(record.client_id, None)
        self._forget_producer(record)
        record.kind, record.groups, record.topics = kind or record.kind, groups, topics
        if record.kind == PRODUCER:
            for topic in record.topics:
                self._producers.setdefault(topic, {})[record.client_id] = None

    def published_topics(self) -> list[str]:
        """The topics that have producers here."""
        return list(self._producers)

    def producers(self, topic: str) -> list[str]:
        """The ids of the producers that named the topic."""
        return list(self._producers.get(topic, ()))

    def _forget_producer(self, record: ClientRecord) -> None:
        for topic in record.topics:
            producers = self._producers.get(topic)
            if producers is not None:
                producers.pop(record.client_id, None)
                if not producers:
                    del self._producers[topic]

    def stream_opened(self, client_id: str, now_s: float) -> None:
        """The client opened one more stream. TOO_MANY_REQUESTS over MAX_STREAMS_PER_CLIENT."""
        record = self.note_alive(client_id, now_s)
        if record.streams >= MAX_STREAMS_PER_CLIENT:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS",
                f"The client {client_id[:80]!r} has {record.streams} telemetry streams, which is the limit.",
            )
        self._strangers.pop(client_id, None)
        record.streams += 1
        record.stream_lost_s = None

    def stream_closed(self, client_id: str, now_s: float) -> None:
        """A stream of the client ended. It is no sign of life."""
        record = self._records.get(client_id)
        if record is not None:
            record.streams = max(0, record.streams - 1)
            if record.streams == 0:
                record.stream_lost_s = now_s

    def remove(self, client_id: str) -> None:
        """Forget a client, as when it says that it ends."""
        record = self._records.pop(client_id, None)
        if record is not None:
            self._forget_producer(record)
            self._names -= record.names
        self._strangers.pop(client_id, None)

    def take_gone(self, now_s: float) -> list[str]:
        """The ids of the clients that are gone; they are forgotten with this call."""
        found = [record.client_id for record in self._records.values() if record.is_gone(now_s)]
        for client_id in found:
            self.remove(client_id)
        return found

    def _make_room(self) -> None:
        if len(self._records) < self._capacity:
            return
        if not self._strangers:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"The limit of {self._capacity} clients is reached.")
        self.remove(next(iter(self._strangers)))
