"""Keeps a broker and its topics registered with each nameserver independently.

A nameserver that is down costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.broker.broker import Broker
from millstream.model.backoff import Backoff, draw
from millstream.model.errors import MillstreamError, Refused
from millstream.model.logic_queue import TopicMapping
from millstream.model.message import Address
from millstream.model.topic import RETRY_PREFIX, TopicConfig
from millstream.protocol.remoting.administration.registration import TELL_ALL_FIELD, BrokerIdentity
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.refusals import error_of
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import RemotingConnection

__all__ = [
    "BUSY_RETRY_MAX_S",
    "FAREWELL_S",
    "REFUSED_RETRY_MAX_S",
    "REGISTRATION_INTERVAL_S",
    "RETRY_S",
    "SETTLED_S",
    "START_REFUSALS",
    "START_S",
    "WHOLE_INTERVAL_S",
    "Registrar",
    "TopicRegistration",
    "UntoldTopics",
    "refused_pause_s",
]


class TopicRegistration:
    """The topics as clients may use them, drained or not, and the groups' retry topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def all(self) -> Iterator[TopicConfig]:
        """All of them."""
        broker = self._broker
        permission = broker.maintenance.permission
        yield from map(permission.apply_to, broker.topics.all())
        names = (RETRY_PREFIX + group.name for group in broker.groups.all())
        yield from (permission.apply_to(_retry_topic(name)) for name in names if broker.topics.find(name) is None)

    def find(self, name: str) -> TopicConfig | None:
        """One of them, or None."""
        broker, topic = self._broker, self._broker.topics.find(name)
        if topic is None and name.startswith(RETRY_PREFIX) and broker.groups.find(name.removeprefix(RETRY_PREFIX)):
            topic = _retry_topic(name)
        return None if topic is None else broker.maintenance.permission.apply_to(topic)

    def watch(self, changed: Callable[[str, TopicConfig | None], None]) -> None:
        """Have it called with each that is new or changed, and with None for one that is gone."""
        self._broker.topics.on_change.append(lambda name, _: changed(name, self.find(name)))
        self._broker.groups.on_change.append(lambda name: changed(RETRY_PREFIX + name, self.find(RETRY_PREFIX + name)))


def _retry_topic(name: str) -> TopicConfig:
    return TopicConfig(name, read_queues=1, write_queues=1)


_log = logging.getLogger(__name__)

REGISTRATION_INTERVAL_S: Final = 30.0
"""Seconds between two registrations of a broker that nothing changes in; nameservers forget it after 120 s."""

WHOLE_INTERVAL_S: Final = 300.0
"""Seconds between two registrations that tell all topics although nothing changed; the others only say that the broker
is there. All of 10,000 topics cost the broker a tenth of a second."""

RETRY_S: Final = 1.0
"""Seconds until a nameserver that did not answer is asked again, and one that refused for the first time."""

REFUSED_RETRY_MAX_S: Final = 10.0
"""Seconds at most until a nameserver that refuses, as where another broker has the name, is asked again."""

BUSY_RETRY_MAX_S: Final = 2.0
"""Seconds at most until a nameserver is asked again that has no room for another registration just now: after its start
it has work for all of its brokers, and is not to be left without."""

FAREWELL_S: Final = 1.0
"""Seconds that a stopping broker waits for its nameservers to hear of it."""

SETTLED_S: Final = 1.5
"""Seconds that whoever changed a topic waits for the nameservers to hear of it, at most: half of what clients wait."""

START_S: Final = 5.0
"""Seconds at most that a start waits for nameservers that refuse the broker."""

START_REFUSALS: Final = 3
"""Refusals that a start waits for: the third comes 2.4 to 3 s after the first, when a nameserver has let go of a broker
of the same name that was killed at another address. Whoever is refused then has a twin that lives."""

_ANSWER_S = 3.0


def refused_pause_s(refusals: int, random: Callable[[], float] = draw, *, is_busy: bool = False) -> float:
    """Seconds until a nameserver is asked again that has refused so many times in a row: twice as many each time, and
    fewer where it `is_busy`."""
    longest_s = BUSY_RETRY_MAX_S if is_busy else REFUSED_RETRY_MAX_S
    return Backoff(RETRY_S, longest_s, random=random).wait_s(refusals - 1)


@dataclass(slots=True)
class UntoldTopics:
    """What one nameserver does not know yet: everything, or the topics that changed. Pure."""

    everything: bool = True
    changed: dict[str, TopicConfig] = field(default_factory=dict)

    def change(self, name: str, topic: TopicConfig | None) -> None:
        """A topic is new, changed or (None) gone. That one is gone can only be told by telling all that are left."""
        if topic is None:
            self.everything = True
        else:
            self.changed[name] = topic

    def take(self, all_topics: Callable[[], Iterable[TopicConfig]]) -> tuple[list[TopicConfig], bool]:
        """The topics to tell now, maybe none, and whether these are all; nothing is untold then, until `put_back`."""
        whole, changed = self.everything, list(self.changed.values())
        self.everything, self.changed = False, {}
        return (list(all_topics()), True) if whole else (changed, False)

    def put_back(self) -> None:
        """What was taken did not arrive, or the nameserver may have lost it."""
        self.everything = True


class Registrar:
    """Registers from `start` to `close`, every 30 s and at each change. `nameservers` are `host:port`.

    A host name is looked up again each 30 s, and each of its addresses is a nameserver; of a name with addresses of
    both kinds those of IPv4 count. `topics` tells all topics as nameservers are to hear of them, `mappings`
    those of the static ones. A replica tells none: those of its master count.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        who: BrokerIdentity,
        topics: Callable[[], Iterable[TopicConfig]],
        *,
        mappings: Callable[[], Iterable[TopicMapping]] = tuple,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._nameservers = list(dict.fromkeys(nameservers))
        self._who = who
        self._topics = topics
        self._mappings = mappings
        self._credentials = credentials
        self._tls = tls
        self._keepers: dict[tuple[str, Address], _Keeper] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def reached(self) -> dict[str, bool]:
        """Each nameserver's address and whether it knows the broker as it is."""
        return {f"{place.host}:{place.port}": keeper.is_told for (_, place), keeper in self._keepers.items()}

    async def start(self) -> None:
        """Begin; those nameservers that answer at once, and let the broker in, know it when this returns.

        It takes `START_S` at most.
        """
        await self._look_up()
        await _all_set((keeper.start_over.wait() for keeper in self._keepers.values()), START_S)
        self._looking = asyncio.create_task(self._look_up_again(), name="look-up-nameservers")

    def note_change(self, name: str, topic: TopicConfig | None) -> None:
        """A topic is new, changed or (None) gone; fits `TopicRegistry.on_change`."""
        for keeper in self._keepers.values():
            keeper.change(name, topic)

    def change_identity(self, who: BrokerIdentity) -> None:
        """Register as another one from now on, of the same name and address, over the same connections."""
        self._who = who
        for keeper in self._keepers.values():
            keeper.change_identity(who)

    def changed_all(self) -> None:
        """All topics are to be told again."""
        for keeper in self._keepers.values():
            keeper.change_all()

    async def await_settled(self, timeout_s: float = SETTLED_S) -> None:
        """Wait until each nameserver knows what changed before, or turned out not to answer."""
        await _all_set((keeper.await_settled() for keeper in self._keepers.values()), timeout_s)

    async def close(self, *, says_farewell: bool = True) -> None:
        """Register no more, and take the registrations back, as far as nameservers answer within `FAREWELL_S`.

        Without a farewell they stand until another broker takes their place, so that topics are never without a route.
        """
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*(keeper.close(says_farewell=says_farewell) for keeper in self._keepers.values()))
        self._keepers.clear()

    async def _look_up_again(self) -> None:
        while True:
            is_known = {name for name, _ in self._keepers} == set(self._nameservers)
            await asyncio.sleep(REGISTRATION_INTERVAL_S if is_known else RETRY_S)
            await self._look_up()

    async def _look_up(self) -> None:
        found = [(name, await _addresses(name)) for name in self._nameservers]
        for name, addresses in found:
            wanted = {(name, address) for address in addresses}
            present = {key for key in self._keepers if key[0] == name}
            if not wanted:
                continue  # The name is not known just now; what it stood for still counts.
            for key in present - wanted:
                await self._keepers.pop(key).close()
            for key in wanted - present:
                self._keepers[key] = self._keeper(*key)

    def _keeper(self, name: str, address: Address) -> _Keeper:
        host = name.rpartition(":")[0].strip("[]")
        return _Keeper(
            address,
            self._who,
            self._topics,
            self._mappings,
            lambda: RemotingConnection.open(
                address, timeout_s=_ANSWER_S, credentials=self._credentials, tls=self._tls, server_name=host
            ),
        )


class _Keeper:
    """One nameserver's side of it."""

    def __init__(
        self,
        address: Address,
        who: BrokerIdentity,
        topics: Callable[[], Iterable[TopicConfig]],
        mappings: Callable[[], Iterable[TopicMapping]],
        connect: Callable[[], Awaitable[RemotingConnection]],
    ) -> None:
        self._where = f"{address.host}:{address.port}"
        self._who = who
        self._topics = topics
        self._mappings = mappings
        self._connect = connect
        self._untold = UntoldTopics()
        self._due = asyncio.Event()
        self._rested = asyncio.Event()
        """Set while nothing is to be told, or the last try failed."""
        self.start_over = asyncio.Event()
        """Set once the nameserver knows the broker, did not answer, or refused `START_REFUSALS` times."""
        self._connection: RemotingConnection | None = None
        self.is_told = False
        self._failure = ""
        """The name of the error by which the last try failed, empty where it did not."""
        self._refusals = 0
        self._told_all_s = 0.0
        self._task = asyncio.create_task(self._keep(), name=f"register-with-{self._where}")

    def change(self, name: str, topic: TopicConfig | None) -> None:
        self._untold.change(name, topic)
        self._wake()

    def change_identity(self, who: BrokerIdentity) -> None:
        self._who = who
        self.change_all()

    def change_all(self) -> None:
        self._untold.put_back()
        self._wake()

    async def await_settled(self) -> None:
        await self._rested.wait()

    async def close(self, *, says_farewell: bool = True) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None and self._connection.is_open:
            if says_farewell:
                with contextlib.suppress(MillstreamError):
                    await self._connection.request(self._who.farewell(), FAREWELL_S)
            await self._connection.close()

    def _wake(self) -> None:
        # While it is down, a change waits for its turn: nobody is to wait for a nameserver that does not answer.
        if not self._failure:
            self._rested.clear()
            self._due.set()

    async def _keep(self) -> None:
        while True:
            self._due.clear()
            try:
                await self._tell()
            except MillstreamError as error:
                self._note_failure(error)
                is_busy = error.name == "TOO_MANY_REQUESTS"
                pause_s = refused_pause_s(self._refusals, is_busy=is_busy) if self._refusals else RETRY_S
            else:
                self._note_success()
                pause_s = REGISTRATION_INTERVAL_S
            if not self._due.is_set():
                self._rested.set()
            # Not wait_for, which forgets that the task is to end where both come at once (Python before 3.12).
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._due.wait()

    async def _tell(self) -> None:
        connection = await self._open()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_all_s >= WHOLE_INTERVAL_S:
            self._untold.put_back()
        topics, whole = self._untold.take(self._topics)
        try:
            # Without topics of its own a replica must never say that these are all.
            tells_all = whole and not self._who.is_replica
            command = self._who.registration(topics, whole=tells_all, mappings=self._mappings())
            answer = await connection.request(command, _ANSWER_S)
            if answer.code != ResponseCode.SUCCESS:
                raise error_of(answer, self._where)
        except MillstreamError:
            self._untold.put_back()
            raise
        if whole:
            self._told_all_s = now_s
        elif answer.ext.get(TELL_ALL_FIELD) == "true":
            self._untold.put_back()
            self._due.set()

    async def _open(self) -> RemotingConnection:
        if self._connection is None or not self._connection.is_open:
            self._connection = None
            self._untold.put_back()
            connection = await self._connect()
            connection.on_close.append(self._wake)
            self._connection = connection
        return self._connection

    def _note_failure(self, error: MillstreamError) -> None:
        self._refusals = self._refusals + 1 if isinstance(error, Refused) else 0
        # Once for each kind of failure: it may have been down before it refused.
        if self._failure != error.name:
            _log.warning(
                "The nameserver %s is not told of this broker, and will be asked again: %s", self._where, error
            )
        self._failure, self.is_told = error.name, False
        if self._refusals == 0 or self._refusals >= START_REFUSALS:
            self.start_over.set()

    def _note_success(self) -> None:
        if self._failure:
            _log.warning("The nameserver %s knows this broker now.", self._where)
        self._failure, self._refusals, self.is_told = "", 0, True
        self.start_over.set()


async def _all_set(waits: Iterable[Coroutine[None, None, object]], timeout_s: float) -> None:
    """Return when all waits are over, or after `timeout_s`."""
    waiting = [asyncio.ensure_future(wait) for wait in waits]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=timeout_s)
        for future in late:
            future.cancel()


async def _addresses(name: str) -> list[Address]:
    """What the name stands for now; [] where nobody knows it."""
    host, _, port = name.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        _log.warning("The nameserver %s cannot be looked up: %s.", name, error)
        return []
    kinds = [family for family, *_ in found]
    kind = socket.AF_INET if socket.AF_INET in kinds else socket.AF_INET6
    return list(dict.fromkeys(Address(str(place[0]), int(port)) for family, *_, place in found if family == kind))
