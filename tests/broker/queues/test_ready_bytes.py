"""How many bytes wait in a light queue, against a count of all that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker_bench import Bench, open_bench
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.queues import ready_bytes
from millstream.model.message import Address, OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, QueuePoint, ResetRequest
from millstream.model.state_topics import ROUTES_TOPIC

QUEUE = "%LMQ%amqp-q"


async def declare(bench: Bench, name: str = "q") -> None:
    routes = {
        f"queue/amqp-{name}": {"kind": "amqp", "group": name},
        f"bind/amqp-{name}/1": {"topic": "t", "amqp": {"type": "fanout", "exchange": "t"}},
    }
    messages = [
        OutgoingMessage(ROUTES_TOPIC, json.dumps(value).encode(), {"KEYS": key}) for key, value in routes.items()
    ]
    await bench.broker.delivery.store_state(messages)


async def send(bench: Bench, size_bytes: int, host: str = "127.0.0.1") -> None:
    await bench.broker.delivery.send([OutgoingMessage("t", b"x" * size_bytes, {}, born_host=Address(host, 1))])


async def ready(bench: Bench, name: str = "q") -> int | None:
    [progress] = await bench.broker.queues.measure_progress(name, f"%LMQ%amqp-{name}")
    return progress.ready_bytes


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["send", "pop", "ack", "release", "expire", "reset", "measure"]), st.integers(1, 90)),
    max_size=40,
)


@settings(max_examples=60)
@given(OPERATIONS)
async def test_what_is_measured_is_what_waits(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    sizes: list[int] = []
    waiting: set[int] = set()
    out: dict[int, PoppedMessage] = {}
    async with open_bench(tmp_path_factory.mktemp("bytes")) as bench:
        await declare(bench)
        for what, number in operations:
            if what == "send":
                await send(bench, number, "::1" if number % 2 else "127.0.0.1")
                waiting.add(len(sizes))
                sizes.append(number)
            elif what == "pop":
                for one in await bench.pop("q", topic=QUEUE, max_messages=number % 5 + 1):
                    out[one.message.queue_offset] = one
                    waiting.discard(one.message.queue_offset)
            elif what in ("ack", "release") and out:
                offset = sorted(out)[number % len(out)]
                handle = out.pop(offset).handle
                if what == "ack":
                    bench.broker.delivery.ack(AckRequest("q", QUEUE, handle))
                else:
                    bench.broker.delivery.change_invisible(ChangeInvisibleRequest("q", QUEUE, handle, 0))
                    waiting.add(offset)
            elif what == "expire":
                bench.clock.advance_ms(60_001)
                waiting |= out.keys()
                out.clear()
            elif what == "reset" and sizes:
                target = number % (len(sizes) + 1)
                bench.broker.queues.reset(ResetRequest("q", QUEUE, QueuePoint.OFFSET, target))
                waiting, out = set(range(target, len(sizes))), {}
            else:
                assert await ready(bench) == sum(sizes[offset] for offset in waiting)
        assert await ready(bench) == sum(sizes[offset] for offset in waiting)


async def test_each_message_is_measured_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    measure = ready_bytes.body_bytes_of
    monkeypatch.setattr(ready_bytes, "body_bytes_of", lambda record: measured.append(1) or measure(record))
    monkeypatch.setattr(ready_bytes, "MAX_MEASURED_AT_ONCE", 2)
    await declare(bench)
    for _ in range(5):
        await send(bench, 10)
    assert [await ready(bench), await ready(bench)] == [50, 50]
    await send(bench, 10)
    [popped] = await bench.pop("q", topic=QUEUE, max_messages=1)
    assert await ready(bench) == 50
    bench.ack(popped, group="q", topic=QUEUE)
    assert (await ready(bench), len(measured)) == (50, 6)


async def test_sizes_of_consumed_messages_are_let_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_bytes, "_MIN_CONSUMED", 4)
    await declare(bench)
    for number in range(20):
        await send(bench, number + 1)
        assert await ready(bench) == number + 1
        [popped] = await bench.pop("q", topic=QUEUE, max_messages=1)
        bench.ack(popped, group="q", topic=QUEUE)
    measured = bench.broker.queues.ready_bytes
    assert len(measured._sizes[QUEUE]._sizes) < 10


async def test_a_queue_that_was_declared_again_is_measured_anew(bench: Bench) -> None:
    await declare(bench)
    await send(bench, 10)
    assert await ready(bench) == 10
    gone = OutgoingMessage(ROUTES_TOPIC, b"", {"KEYS": "queue/amqp-q"})
    await bench.broker.delivery.store_state([gone])
    await declare(bench)
    await send(bench, 3)
    assert await ready(bench) == 3


async def test_of_too_many_queues_the_sizes_of_the_last_ones_are_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_bytes, "MAX_MEASURED_QUEUES", 2)
    for name in "qrs":
        await declare(bench, name)
    await send(bench, 7)
    for name in "qrsq":
        assert await ready(bench, name) == 7
    assert list(bench.broker.queues.ready_bytes._sizes) == ["%LMQ%amqp-s", "%LMQ%amqp-q"]


async def test_other_topics_are_not_measured(bench: Bench) -> None:
    await send(bench, 7)
    await bench.pop("g")
    assert [one.ready_bytes for one in await bench.broker.queues.measure_progress("g", "t")] == [None] * 4


async def test_a_broker_that_starts_again_measures_what_is_left(tmp_path: Path) -> None:
    async with open_bench(tmp_path) as bench:
        await declare(bench)
        await send(bench, 7)
        await send(bench, 5)
        [popped] = await bench.pop("q", topic=QUEUE, max_messages=1)
        bench.ack(popped, group="q", topic=QUEUE)
    async with open_bench(tmp_path) as bench:
        assert await ready(bench) == 5
