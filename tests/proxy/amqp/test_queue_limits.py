"""When a proxy looks at queues whose messages, or who themselves, have a time."""

from __future__ import annotations

import asyncio

import pytest

from millstream.model.clock import ManualClock
from millstream.proxy.amqp.declarations import AmqpQueue
from millstream.proxy.amqp.queue_limits import LOOK_INTERVAL_S, MAX_LOOKS, QueueLimits
from millstream.proxy.amqp.virtual_host import VirtualHost


class OneHost:
    """Declarations that nobody stores."""

    def __init__(self) -> None:
        self.host = VirtualHost("/")
        self.hosts = {"/": self.host}
        self.uses_s: dict[tuple[str, str], float] = {}
        self.clock = ManualClock()
        self.consumed: set[str] = set()
        self.used_s: dict[tuple[str, str], float] = {}

    def orphans(self, _host: VirtualHost) -> list[AmqpQueue]:
        return []

    async def note_use(self, virtual_host: str, name: str) -> None:
        self.uses_s[virtual_host, name] = self.clock.monotonic_s()

    # as the proxy's queues

    def consumers_of(self, _host: str, name: str) -> int:
        return name in self.consumed

    def note_queue_use(self, virtual_host: str, name: str) -> None:
        self.used_s[virtual_host, name] = self.clock.monotonic_s()

    async def delete(self, host: VirtualHost, queue: AmqpQueue) -> None:
        host.remove("queue", queue.name)


class CountedLooks(QueueLimits):
    """Counts the queues whose heads are looked at."""

    def __init__(self, ground: OneHost) -> None:
        super().__init__(None, ground, QueuesOf(ground), ground.clock)  # type: ignore[arg-type]
        self.looked: list[str] = []

    async def _look(self, host: VirtualHost, queue: AmqpQueue) -> float:
        self.looked.append(queue.name)
        return LOOK_INTERVAL_S


class QueuesOf:
    """What the limits ask of the proxy's queues."""

    def __init__(self, ground: OneHost) -> None:
        self.consumers_of, self.note_use, self.delete = ground.consumers_of, ground.note_queue_use, ground.delete
        self.used_s = ground.used_s


@pytest.fixture
def ground() -> OneHost:
    return OneHost()


def test_a_sweep_looks_at_so_many_queues_and_the_next_ones_go_on(ground: OneHost) -> None:
    for number in range(MAX_LOOKS + 50):
        ground.host.put(AmqpQueue(f"q{number}", arguments={"x-message-ttl": 1000}))
    ground.host.put(AmqpQueue("timeless"))
    limits = CountedLooks(ground)
    counts = []
    for _ in range(3):
        before = len(limits.looked)
        asyncio.run(limits.sweep())
        counts.append(len(limits.looked) - before)
    assert counts == [MAX_LOOKS, 50, 0]
    assert len(set(limits.looked)) == MAX_LOOKS + 50
    ground.clock.advance_ms(int(LOOK_INTERVAL_S * 1000))
    asyncio.run(limits.sweep())
    assert len(limits.looked) == 2 * MAX_LOOKS + 50


def test_a_queue_that_was_deleted_is_looked_at_no_more_and_again_when_it_is_there_again(ground: OneHost) -> None:
    limits = CountedLooks(ground)
    queue = AmqpQueue("q", arguments={"x-message-ttl": 1000})
    for is_there in (True, False, True):
        if is_there:
            ground.host.put(queue)
        else:
            ground.host.remove("queue", "q")
        ground.clock.advance_ms(int(LOOK_INTERVAL_S * 1000))
        asyncio.run(limits.sweep())
        ground.clock.advance_ms(int(LOOK_INTERVAL_S * 1000))
    assert limits.looked == ["q", "q"]


def test_a_queue_goes_once_nobody_has_used_it_for_its_time_at_any_proxy(ground: OneHost) -> None:
    limits = CountedLooks(ground)
    ground.host.put(AmqpQueue("q", arguments={"x-expires": 3000}))
    ground.consumed.add("q")

    def pass_s(seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            ground.clock.advance_ms(250)
            asyncio.run(limits.sweep())

    pass_s(20)
    assert "q" in ground.host.queues
    ground.consumed.clear()
    pass_s(2)
    # Another proxy says that a client of its own has used it.
    asyncio.run(ground.note_use("/", "q"))
    pass_s(2)
    assert "q" in ground.host.queues
    pass_s(2.5)
    assert "q" not in ground.host.queues
