"""The numbers of queues for clients that name no brokers: each queue keeps the number that it was given first.

A topic's brokers stand in the order in which they came, each as often as it got more queues (`broker-a:4;broker-b:4`).
That is kept by the nameservers, as a value of the topic in a namespace, so all proxies give the same numbers, and go on
giving them when they start again. Of lists that differ, as where brokers came at two proxies at a time, the longest
counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import ConnectionFailed
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.backend import RouteQueue
from millstream.proxy.remote.known_route import KnownRoute
from millstream.proxy.remote.request_forwarder import RequestForwarder
from millstream.proxy.remoting.numbered import NumberedQueues

__all__ = ["MAX_NUMBERED_TOPICS", "NAMESPACE", "REREAD_S", "QueueNumbers", "extend_blocks"]

_log = logging.getLogger(__name__)

NAMESPACE: Final = "MILLSTREAM_QUEUE_NUMBERS"
"""Where nameservers keep the lists."""

REREAD_S: Final = 30.0
"""Seconds after which a list is read again when a client asks for the topic's route."""

MAX_NUMBERED_TOPICS: Final = 10_000
"""Topics of which a proxy keeps the list; the oldest is forgotten and read again."""

_MAX_NUMBERS: Final = 65_536

Blocks = tuple[tuple[str, int], ...]
"""Brokers and numbers of queues; a broker's later blocks go on counting where its former ones ended."""


def extend_blocks(blocks: Blocks, queues: Iterable[RouteQueue]) -> Blocks:
    """The list with those queues at its end that have no number yet, by broker."""
    wanted: dict[str, int] = {}
    for queue in queues:
        wanted[queue.broker_name] = max(wanted.get(queue.broker_name, 0), queue.queue_id + 1)
    for name, count in blocks:
        wanted[name] = wanted.get(name, 0) - count
    return blocks + tuple((name, count) for name, count in sorted(wanted.items()) if count > 0)


def _places(blocks: Blocks) -> tuple[tuple[str, int], ...]:
    """Broker and own number of each queue, by the number that clients know."""
    given: dict[str, int] = {}
    found: list[tuple[str, int]] = []
    for name, count in blocks:
        first = given.get(name, 0)
        found += [(name, first + number) for number in range(count)]
        given[name] = first + count
    return tuple(found)


def _text(blocks: Blocks) -> str:
    return ";".join(f"{name}:{count}" for name, count in blocks)


def _read(text: str) -> Blocks:
    """The list of a text; nothing for one that is none, as somebody else may have written there."""
    parts = [item.rpartition(":") for item in text.split(";") if item]
    if not all(mark and count.isascii() and count.isdecimal() and len(count) < 6 for _, mark, count in parts):
        return ()
    blocks = tuple((name, int(count)) for name, _, count in parts)
    return blocks if sum(count for _, count in blocks) <= _MAX_NUMBERS else ()


@dataclass(slots=True)
class _CachedNumbers:
    blocks: Blocks
    read_s: float
    numbered: NumberedQueues


class QueueNumbers:
    """The lists that one proxy knows."""

    def __init__(self, passage: RequestForwarder, clock: Clock) -> None:
        self._passage = passage
        self._clock = clock
        self._kept: dict[str, _CachedNumbers] = {}

    def find(self, known: KnownRoute) -> NumberedQueues | None:
        """The numbers of a route's queues, if they are known."""
        kept = self._kept.get(known.route.topic)
        return kept.numbered if kept is not None and kept.numbered.known is known else None

    async def get(self, known: KnownRoute) -> NumberedQueues:
        """The same; what is not known, or not of late, is asked. Where no nameserver answers, what is known holds."""
        topic, now_s = known.route.topic, self._clock.monotonic_s()
        kept = self._kept.get(topic)
        if known.is_static:
            return NumberedQueues(known, tuple((one.broker_name, one.queue_id) for one in known.route.queues))
        blocks = () if kept is None else kept.blocks
        if kept is None or now_s - kept.read_s >= REREAD_S or extend_blocks(blocks, known.route.queues) != blocks:
            blocks = await self._agree(topic, blocks, known)
        else:
            now_s = kept.read_s
        self._kept.pop(topic, None)
        if len(self._kept) >= MAX_NUMBERED_TOPICS:
            del self._kept[next(iter(self._kept))]
        numbered = NumberedQueues(known, _places(blocks))
        self._kept[topic] = _CachedNumbers(blocks, now_s, numbered)
        return numbered

    async def _agree(self, topic: str, own: Blocks, known: KnownRoute) -> Blocks:
        """The list of the nameservers, with all of the route's queues in it; they are told of one that is longer."""
        place = {"namespace": NAMESPACE, "key": topic}
        told: list[Blocks] = []
        try:
            answers = await self._passage.to_nameservers(topic, RemotingCommand(RequestCode.GET_KV_CONFIG, place))
            told = [_read(one.ext.get("value", "") if one.code == ResponseCode.SUCCESS else "") for one in answers]
        except ConnectionFailed as error:
            _log.info("The numbers of the queues of %s are not read: %s", topic, error)
        longest = max((own, *told), key=lambda blocks: (sum(count for _, count in blocks), _text(blocks)))
        blocks = extend_blocks(longest, known.route.queues)
        if any(one != blocks for one in told):
            ext = {**place, "value": _text(blocks)}
            try:
                await self._passage.to_nameservers(topic, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext))
            except ConnectionFailed as error:
                _log.info("The numbers of the queues of %s are not kept yet: %s", topic, error)
        return blocks
