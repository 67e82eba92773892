"""What backends do over light queues: declared by routes, popped and acknowledged like topics of one queue."""

from __future__ import annotations

import json

from contract_ground import Ground, refused, state_record

from millstream.model.operations import AckRequest, ChangeInvisibleRequest, PoppedMessage, PopRequest
from millstream.model.state_topics import ROUTES_TOPIC

QUEUE = "%LMQ%q"


async def put(ground: Ground, key: str, value: object = None) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    await ground.backend.store_state(ground.broker.name, [state_record(ROUTES_TOPIC, key, body)])


async def declare(ground: Ground) -> None:
    await put(ground, "queue/q", {"kind": "amqp", "group": "q"})
    await put(ground, "bind/q/1", {"topic": "orders", "amqp": {"type": "direct", "exchange": "orders", "key": "a"}})


async def pop(ground: Ground, **more: object) -> list[PoppedMessage]:
    return await ground.pop(QUEUE, "q", **more)


async def test_a_light_queue_gives_what_its_bindings_fit(ground: Ground) -> None:
    await declare(ground)
    await ground.send("orders", b"one", TAGS="a", note="n", key="k")
    await ground.send("orders", b"two", TAGS="b")
    await ground.send("orders", b"three", TAGS="a")
    popped = await pop(ground)
    assert [(one.message.body, one.message.topic, one.handle.queue_offset) for one in popped] == [
        (b"one", "orders", 0),
        (b"three", "orders", 1),
    ]
    assert popped[0].message.user_properties == {"note": "n", "key": "k"}
    assert await pop(ground) == []


async def test_deliveries_are_acknowledged_made_visible_and_buried(ground: Ground) -> None:
    await declare(ground)
    for body in (b"acked", b"again", b"dead"):
        await ground.send("orders", body, TAGS="a")
    acked, again, dead = await pop(ground)
    await ground.backend.ack(AckRequest("q", QUEUE, acked.handle))
    await ground.backend.change_invisible(ChangeInvisibleRequest("q", QUEUE, again.handle, 0))
    await ground.backend.dead_letter(AckRequest("q", QUEUE, dead.handle))
    (second,) = await pop(ground)
    assert (second.message.body, second.delivery_attempt) == (b"again", 2)
    await ground.backend.ack(AckRequest("q", QUEUE, second.handle))
    assert await ground.backend.group_offset(ground.broker.name, "q", QUEUE, 0) == 3
    assert [one.message.body for one in await ground.pop("%DLQ%q", "reader")] == [b"dead"]


async def test_deliveries_of_somebody_who_is_gone_come_again_in_their_order(ground: Ground) -> None:
    await declare(ground)
    for body in (b"1", b"2", b"3"):
        await ground.send("orders", body, TAGS="a")
    _, acked, _ = await pop(ground)
    await ground.backend.ack(AckRequest("q", QUEUE, acked.handle))
    await ground.backend.release_deliveries(ground.broker.name, "q", QUEUE)
    again = await pop(ground)
    assert [(one.message.body, one.delivery_attempt) for one in again] == [(b"1", 2), (b"3", 2)]
    assert [(one.message.body, one.delivery_attempt) for one in await pop(ground, releases=True)] == [
        (b"1", 3),
        (b"3", 3),
    ]
    assert await pop(ground) == []
    missing = ground.backend.release_deliveries(ground.broker.name, "q", "%LMQ%none")
    assert await refused(missing) == "TOPIC_NOT_FOUND"


async def test_a_waiting_pop_is_woken(ground: Ground) -> None:
    import asyncio

    await declare(ground)
    request = PopRequest("q", QUEUE, 30_000, wait_ms=30_000)
    waiting = asyncio.ensure_future(ground.backend.pop(ground.broker.name, request))
    await ground.someone_waits()
    await ground.send("orders", b"late", TAGS="a")
    assert [one.message.body for one in await waiting] == [b"late"]


async def test_expired_messages_come_for_who_asks_for_them(ground: Ground) -> None:
    await declare(ground)
    await ground.send("orders", b"old", TAGS="a", __EXPIRES_MS="1")
    await ground.send("orders", b"new", TAGS="a")
    assert [one.message.body for one in await pop(ground, takes_expired=True, max_messages=1)] == [b"old"]
    await ground.send("orders", b"old", TAGS="a", __EXPIRES_MS="1")
    assert [one.message.body for one in await pop(ground)] == [b"new"]


async def test_a_queue_that_is_gone_and_the_wrong_group_are_refused(ground: Ground) -> None:
    await declare(ground)
    assert await refused(ground.pop(QUEUE, "other")) in ("LIGHT_QUEUE_GROUP", "FORBIDDEN")
    await put(ground, "queue/q")
    assert await refused(pop(ground)) == "TOPIC_NOT_FOUND"
    await declare(ground)
    assert await pop(ground) == []


async def test_a_route_that_means_nothing_is_refused(ground: Ground) -> None:
    assert await refused(put(ground, "queue/q", {"kind": "else", "group": "q"})) in ("ILLEGAL_ROUTE", "QUEUE_NOT_FOUND")
