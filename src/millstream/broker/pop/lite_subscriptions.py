"""Which client subscribes to which lite topics, and which of them have news for it. Pure, in memory only.

Clients say all that they read every 30 s, so what a restart forgets comes back by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from millstream.model.errors import ConsumeRefused
from millstream.model.lite import MAX_LITE_SUBSCRIPTIONS, lite_queue

__all__ = ["MAX_ALL_SUBSCRIPTIONS", "MAX_ATTEMPTS", "Added", "LiteSubscriptions", "Subscriber", "party_of"]

MAX_ALL_SUBSCRIPTIONS = 1_000_000
"""Subscriptions of all clients together at most, about 200 bytes each."""

MAX_ATTEMPTS = 4
"""Attempts of a client of which it is known what they took; the oldest is forgotten first."""


def party_of(group: str, client_id: str) -> str:
    """As whom a client's receives wait; no group has such a name."""
    return f"{group}@{client_id}"


@dataclass(slots=True, eq=False)
class Subscriber:
    """One client as a member of a group: the stored names of its lite topics of one bind topic.

    `pending` are those that may have something for it, the one that waits longest first.
    """

    client_id: str
    group: str
    topic: str
    names: dict[str, None] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    attempts: dict[int, list[str]] = field(default_factory=dict)

    @property
    def party(self) -> str:
        """What its waiting receives are known by."""
        return party_of(self.group, self.client_id)

    def remember(self, attempt_key: int, names: list[str]) -> None:
        """Keep what an attempt took."""
        if attempt_key:
            self.attempts[attempt_key] = names
            while len(self.attempts) > MAX_ATTEMPTS:
                del self.attempts[next(iter(self.attempts))]


@dataclass(frozen=True, slots=True)
class Added:
    """What came of new subscriptions: stored names that the client has now, and those that it or another lost."""

    new: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    """Pairs of client and lite topic."""


class LiteSubscriptions:
    """Subscribers by client, group and bind topic, and by lite topic.

    `per_client` and `total` bound the subscriptions: LITE_SUBSCRIPTION_QUOTA_EXCEEDED.
    """

    def __init__(self, *, per_client: int = MAX_LITE_SUBSCRIPTIONS, total: int = MAX_ALL_SUBSCRIPTIONS) -> None:
        self._per_client = per_client
        self._total = total
        self._count = 0
        self._by_client: dict[str, dict[tuple[str, str], Subscriber]] = {}
        self._by_name: dict[str, dict[Subscriber, None]] = {}

    def __len__(self) -> int:
        return self._count

    def find(self, client_id: str, group: str, topic: str) -> Subscriber | None:
        """The client as a member of the group, None if it reads nothing there."""
        return self._by_client.get(client_id, {}).get((group, topic))

    def readers(self, name: str, group: str | None = None) -> list[Subscriber]:
        """Who reads the lite topic of that stored name, of one group or of all."""
        return [one for one in self._by_name.get(name, ()) if group is None or one.group == group]

    def add(
        self, client_id: str, group: str, topic: str, lite_topics: Collection[str], *, exclusive: bool, takes: bool
    ) -> Added:
        """Let the client read these lite topics besides what it reads.

        In an `exclusive` group a lite topic has one reader: a client that `takes` it ends the subscription of the
        one before, any other goes without. All or none where the limit does not allow all.
        """
        subscriber = self.find(client_id, group, topic) or Subscriber(client_id, group, topic)
        wanted = {lite_queue(topic, lite): lite for lite in lite_topics}
        fresh = [name for name in wanted if name not in subscriber.names]
        self._check_room(client_id, len(fresh))
        new: list[str] = []
        lost: list[tuple[str, str]] = []
        for name in fresh:
            others = self.readers(name, group) if exclusive else []
            if others and not takes:
                lost.append((client_id, wanted[name]))
                continue
            for other in others:
                self._drop(other, [name])
                lost.append((other.client_id, wanted[name]))
            self._enter(subscriber, name)
            new.append(name)
        if subscriber.names:
            self._by_client.setdefault(client_id, {})[group, topic] = subscriber
        return Added(tuple(new), tuple(lost))

    def keep(self, client_id: str, group: str, topic: str, lite_topics: Iterable[str]) -> None:
        """Let the client read none but these of what it reads."""
        subscriber = self.find(client_id, group, topic)
        if subscriber is not None:
            kept = {lite_queue(topic, lite) for lite in lite_topics}
            self._drop(subscriber, [name for name in subscriber.names if name not in kept])

    def remove(self, client_id: str, group: str, topic: str, lite_topics: Iterable[str]) -> None:
        """Let the client read these no more."""
        subscriber = self.find(client_id, group, topic)
        if subscriber is not None:
            self._drop(subscriber, [lite_queue(topic, lite) for lite in lite_topics])

    def remove_client(self, client_id: str) -> None:
        """Forget a client that went."""
        for subscriber in list(self._by_client.get(client_id, {}).values()):
            self._drop(subscriber, list(subscriber.names))

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Forget the subscriptions of a bind topic or of a group that is deleted."""
        found = [one for mine in self._by_client.values() for one in mine.values()]
        for subscriber in found:
            if subscriber.topic == topic or subscriber.group == group:
                self._drop(subscriber, list(subscriber.names))

    def _check_room(self, client_id: str, more: int) -> None:
        present = sum(len(one.names) for one in self._by_client.get(client_id, {}).values())
        if present + more > self._per_client or self._count + more > self._total:
            raise ConsumeRefused(
                "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
                f"The client has {present} lite topics and asks for {more} more; the limits are {self._per_client} for "
                f"a client and {self._total} for all.",
            )

    def _enter(self, subscriber: Subscriber, name: str) -> None:
        subscriber.names[name] = None
        subscriber.pending[name] = None
        self._by_name.setdefault(name, {})[subscriber] = None
        self._count += 1

    def _leave(self, subscriber: Subscriber, name: str) -> None:
        if name not in subscriber.names:
            return
        del subscriber.names[name]
        subscriber.pending.pop(name, None)
        self._count -= 1
        readers = self._by_name[name]
        del readers[subscriber]
        if not readers:
            del self._by_name[name]

    def _drop(self, subscriber: Subscriber, names: Iterable[str]) -> None:
        for name in names:
            self._leave(subscriber, name)
        if not subscriber.names:
            mine = self._by_client[subscriber.client_id]
            mine.pop((subscriber.group, subscriber.topic), None)
            if not mine:
                del self._by_client[subscriber.client_id]
