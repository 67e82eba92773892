"""Pops of light queues that have nothing: they cost next to nothing, leave nothing, and refuse what others refuse."""

from __future__ import annotations

import json

import pytest
from broker_bench import Bench, bodies

from millstream.broker.pop.popper import Popper
from millstream.model.errors import MillstreamError
from millstream.model.message import OutgoingMessage
from millstream.model.operations import AckRequest, ChangeInvisibleRequest
from millstream.model.state_topics import ROUTES_TOPIC
from millstream.model.topic import TopicConfig

SESSION = "%LMQ%mqtt-a"
GROUP = "CID_MQTT"


@pytest.fixture
async def session(bench: Bench) -> Bench:
    """A bench with the light queue of a session that wants everything."""
    said = {"queue/mqtt-a": {"kind": "mqtt", "group": GROUP}, "bind/mqtt-a/1": {"topic": "t", "mqtt": "#"}}
    messages = [OutgoingMessage(ROUTES_TOPIC, json.dumps(body).encode(), {"KEYS": key}) for key, body in said.items()]
    await bench.broker.delivery.store_state(messages)
    return bench


def has_ledger(bench: Bench) -> bool:
    return bench.broker.delivery.popper.offsets.ledger(GROUP, SESSION, 0) is not None


async def test_a_pop_of_one_that_never_had_a_message_opens_no_ledger_and_the_first_one_comes_later(
    session: Bench,
) -> None:
    assert await session.pop(GROUP, topic=SESSION, queue_id=0) == []
    assert not has_ledger(session)
    await session.send("one", "two")
    assert bodies(await session.pop(GROUP, topic=SESSION, queue_id=0)) == ["one", "two"]
    assert has_ledger(session)


async def test_what_is_in_flight_comes_again_when_nothing_new_is_there(session: Bench) -> None:
    await session.send("one")
    (popped,) = await session.pop(GROUP, topic=SESSION, queue_id=0)
    assert await session.pop(GROUP, topic=SESSION, queue_id=0) == []
    session.broker.delivery.change_invisible(ChangeInvisibleRequest(GROUP, SESSION, popped.handle, 0))
    (again,) = await session.pop(GROUP, topic=SESSION, queue_id=0)
    assert again.message.body == b"one"
    session.broker.delivery.ack(AckRequest(GROUP, SESSION, again.handle))
    assert await session.pop(GROUP, topic=SESSION, queue_id=0) == []
    await session.send("two")
    assert bodies(await session.pop(GROUP, topic=SESSION, queue_id=0)) == ["two"]


async def test_where_the_group_has_a_retry_topic_that_is_looked_at_as_well(
    session: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.broker.topics.create(TopicConfig(f"%RETRY%{GROUP}", read_queues=1, write_queues=1))
    looks: list[str] = []
    usual = Popper.list_retry_queues
    monkeypatch.setattr(Popper, "list_retry_queues", lambda *args: looks.append("look") or usual(*args))
    assert await session.pop(GROUP, topic=SESSION, queue_id=0) == []
    assert looks == ["look"]


@pytest.mark.parametrize(
    ("group", "topic", "queue_id"), [("other", SESSION, 0), (GROUP, SESSION, 1), (GROUP, "%LMQ%mqtt-b", 0)]
)
async def test_what_is_refused_is_refused_of_an_empty_one_too(
    session: Bench, group: str, topic: str, queue_id: int
) -> None:
    with pytest.raises(MillstreamError) as of_empty:
        await session.pop(group, topic=topic, queue_id=queue_id)
    await session.send("one")
    with pytest.raises(MillstreamError) as of_filled:
        await session.pop(group, topic=topic, queue_id=queue_id)
    assert (of_empty.value.name, of_empty.value.message) == (of_filled.value.name, of_filled.value.message)
