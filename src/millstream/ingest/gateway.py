"""Runs the inputs of one process, from the check of the topic to the last acknowledgement.

The pages of a gateway: what its inputs have done, and whether it takes events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from millstream.client.client import Client
from millstream.ingest.topic_writer import BulkLane, InputStatistics, RecordLane, Target, TopicWriter
from millstream.model.errors import AccessRefused, ConnectionFailed, MessageRefused, NameRefused, StartRefused
from millstream.model.message import Address
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.telemetry.metrics import CONTENT_TYPE, MetricsPage
from millstream.transport.http_pages import HttpPages, Page

__all__ = ["STOP_PATIENCE_S", "Gateway", "GatewayPlan", "Input", "InputPlan", "Measured", "gateway_pages"]

_TOTALS: Final = tuple("stored refused cut dead malformed dropped kernel_drops turned_away broken unreadable".split())


class Measured(Protocol):
    """An input as the page sees it."""

    name: str
    tally: InputStatistics
    outlet: TopicWriter


def gateway_pages(inputs: Sequence[Measured], host: str, port: int) -> HttpPages:
    """The pages /metrics and /healthz, not open yet."""

    async def metrics() -> Page:
        return Page(200, CONTENT_TYPE, _metrics_text(inputs))

    async def health() -> Page:
        away = [one.name for one in inputs if one.outlet.is_away]
        words = f"events of {', '.join(away)} wait for the broker" if away else "ok"
        return Page(503 if away else 200, "text/plain; charset=utf-8", words + "\n")

    return HttpPages({"/metrics": metrics, "/healthz": health}, host, port)


def _metrics_text(inputs: Sequence[Measured]) -> str:
    page = MetricsPage(cluster="", node_id=f"{socket.gethostname()}-{os.getpid()}")
    for one in inputs:
        tally, name = one.tally, one.name
        add = page.add
        add("millstream_ingest_taken_total", tally.taken, name, node_type="ingest")
        add("millstream_ingest_taken_bytes_total", tally.taken_bytes, name, node_type="ingest")
        for outcome in _TOTALS:
            count = getattr(tally, outcome)
            add("millstream_ingest_events_total", count, name, outcome, node_type="ingest")
        add("millstream_ingest_retries_total", tally.retries, name, node_type="ingest")
        add("millstream_ingest_waiting_bytes", one.outlet.waiting_bytes, name, node_type="ingest")
        add("millstream_ingest_unread_bytes", tally.unread_bytes, name, node_type="ingest")
        add("millstream_ingest_peers", tally.peers, name, node_type="ingest")
    return page.text()


STOP_PATIENCE_S: Final = 10.0
"""Seconds that a stop waits for the broker to take what waits."""


class Input(Protocol):
    """Where events come from. It gives them to its outlet."""

    name: str
    tally: InputStatistics
    outlet: TopicWriter

    async def start(self) -> Mapping[str, Address]:
        """Begin; where it can be reached. Raises StartRefused."""
        ...

    async def wait(self) -> None:
        """Return when there is nothing more to come; an input that listens never does."""
        ...

    async def stop(self) -> None:
        """Take no more events."""
        ...

    def reload_certificate(self) -> None:
        """Read the certificate again; nothing for an input without TLS."""
        ...

    async def finish(self) -> None:
        """Note how far it came, once the outlet has sent what waited."""
        ...


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input and where its events go; `make` gives it its outlet, its counts and what says a line.

    `name` tells several inputs of a kind apart, in what they say and in their counts.
    """

    make: Callable[[TopicWriter, InputStatistics, Callable[[str], None]], Input]
    target: Target
    is_bulk: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """What a gateway does. `metrics_port` None offers no pages."""

    inputs: Sequence[InputPlan]
    nameserver: str
    timeout_s: float = 3.0
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    stop_patience_s: float = STOP_PATIENCE_S


class Gateway:
    """The inputs of a plan. `say` takes lines for people."""

    def __init__(self, plan: GatewayPlan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._client: Client | None = None
        self._inputs: list[Input] = []
        self._pages: HttpPages | None = None
        self.unsent = 0
        """Events that a stop left unsent."""

    async def start(self) -> dict[str, Address]:
        """Look at the topics and start the inputs; where they and the pages can be reached.

        Raises what is wrong with a topic. A broker that is away is waited for.
        """
        client = self._client = Client(self._plan.nameserver, timeout_s=self._plan.timeout_s)
        places: dict[str, Address] = {}
        try:
            away = [words for one in self._plan.inputs if (words := await self._check(client, one))]
            for one in self._plan.inputs:
                places |= await self._begin(client, one)
            # Not before: where an input cannot begin, there is nothing that would wait.
            if away:
                self._say(away[0])
            if self._plan.metrics_port is not None:
                host = self._plan.metrics_host
                self._pages = gateway_pages(self._inputs, host, self._plan.metrics_port)
                places["metrics"] = Address(host, await self._pages.start())
        except BaseException:
            await self.close()
            raise
        return places

    async def wait(self) -> None:
        """Return when all inputs have come to their end and all is acknowledged."""
        await asyncio.gather(*(one.wait() for one in self._inputs))

    async def close(self) -> None:
        """Take no more, send what waits, and note how far the inputs came."""
        for one in self._inputs:
            await one.stop()
        left = await asyncio.gather(*(one.outlet.close(self._plan.stop_patience_s) for one in self._inputs))
        self.unsent = sum(left)
        for one in self._inputs:
            await one.finish()
        if self._pages is not None:
            await self._pages.close()
        if self._client is not None:
            await self._client.close()

    def reload_certificate(self) -> None:
        """Have the inputs that speak TLS read their certificates again; the old one holds where that fails."""
        for one in self._inputs:
            try:
                one.reload_certificate()
            except StartRefused as error:
                self._say(f"the old certificate is used on: {error}")

    @property
    def has_losses(self) -> bool:
        """Whether events were left unsent, refused, dropped or unreadable."""
        return bool(self.unsent) or any(one.tally.has_losses for one in self._inputs)

    def counts(self) -> dict[str, dict[str, int]]:
        """The counts of all inputs, by their names."""
        return {one.name: {**asdict(one.tally), "unsent": one.outlet.waiting_events} for one in self._inputs}

    def summary(self) -> str:
        """The counts of all inputs, for people."""
        lines = [f"{one.name}: {one.tally.sentence()}" for one in self._inputs]
        return "\n".join([*lines, *[f"{self.unsent:,} events were not sent"] * bool(self.unsent)])

    async def _begin(self, client: Client, plan: InputPlan) -> Mapping[str, Address]:
        tally = InputStatistics()
        lane = BulkLane(client) if plan.is_bulk else RecordLane(client)
        say = self._say if plan.name is None else lambda words: self._say(f"{plan.name}: {words}")
        outlet = TopicWriter(lane, plan.target, tally, say)
        one = plan.make(outlet, tally, say)
        outlet.start()
        self._inputs.append(one)
        places = await one.start()
        if plan.name is None:
            return places
        one.name = plan.name
        return {f"{plan.name}.{name}": place for name, place in places.items()}

    async def _check(self, client: Client, plan: InputPlan) -> str:
        """Look at the topics of an input; what is to be said where the broker does not tell."""
        target = plan.target
        for name in filter(None, (target.topic, target.dead_letters)):
            try:
                if not await client.queues(name, Permission.WRITE):
                    raise NameRefused("FORBIDDEN", f"The topic {name} has no queue that can be written.")
                # Who may only send to the topic need not be allowed to list the topics.
                with contextlib.suppress(AccessRefused):
                    _check_kind(await client.describe_topic(name), is_bulk=plan.is_bulk)
            except ConnectionFailed as error:
                return f"the broker is away, events will wait for it: {error}"
        return ""


def _check_kind(topic: TopicConfig, *, is_bulk: bool) -> None:
    if is_bulk and not topic.holds_batches:
        raise MessageRefused(
            "MESSAGE_TYPE_MISMATCH",
            f"The topic {topic.name} takes no bulk messages.",
            remedy="Leave --bulk out, or make a topic for them: millstream topic create NAME --batches.",
        )
    if topic.message_type not in (MessageType.NORMAL, MessageType.MIXED):
        raise MessageRefused(
            "MESSAGE_TYPE_MISMATCH",
            f"The topic {topic.name} is of type {topic.message_type.value}; ingested events are ordinary messages.",
            remedy="Use a topic of type normal.",
        )
