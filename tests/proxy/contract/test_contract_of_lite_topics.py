"""What backends do for clients of lite topics."""

from __future__ import annotations

import pytest
from contract_ground import Ground, outgoing, refused

from millstream.model.group import GroupConfig
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.model.topic import MessageType


@pytest.fixture
def lite(ground: Ground) -> Ground:
    ground.create("bind", MessageType.LITE)
    return ground


def sync(client: str, *lite_topics: str, action: LiteAction = LiteAction.PARTIAL_ADD, group: str = "g") -> LiteSync:
    return LiteSync(client, group, "bind", action, lite_topics, LiteStart(LiteStartKind.MIN))


async def test_a_client_receives_of_the_lite_topics_that_it_reads(lite: Ground) -> None:
    for name in ("a", "b"):
        message = outgoing("bind", name.encode(), MessageType.LITE, __LITE_TOPIC=name)
        await lite.backend.send([message])
    assert await lite.backend.sync_lite_subscription(sync("c1", "a")) == []
    (popped,) = await lite.pop("bind", client_id="c1")
    assert (popped.message.body, popped.handle.lite_topic) == (b"a", "a")
    assert await lite.pop("bind", client_id="c1") == []
    assert await lite.pop("bind", client_id="c2") == []


async def test_a_client_that_left_receives_nothing(lite: Ground) -> None:
    await lite.backend.sync_lite_subscription(sync("c1", "a"))
    await lite.backend.leave_lite_topics("c1")
    await lite.backend.leave_lite_topics("stranger")
    await lite.backend.send([outgoing("bind", b"x", MessageType.LITE, __LITE_TOPIC="a")])
    assert await lite.pop("bind", client_id="c1") == []


async def test_who_takes_a_lite_topic_over_is_told_whose_it_was(lite: Ground) -> None:
    for broker in lite.brokers:
        broker.groups.create(GroupConfig("one", lite_exclusive=True))
    assert await lite.backend.sync_lite_subscription(sync("c1", "a", "b", group="one")) == []
    assert await lite.backend.sync_lite_subscription(sync("c2", "a", group="one")) == [("c1", "a")]


async def test_subscriptions_that_cannot_be_are_refused_by_name(lite: Ground) -> None:
    subscribe = lite.backend.sync_lite_subscription
    assert await refused(subscribe(LiteSync("c", "g", "orders", LiteAction.PARTIAL_ADD, ("a",)))) == "ILLEGAL_TOPIC"
    assert await refused(subscribe(LiteSync("c", "g", "none", LiteAction.PARTIAL_ADD, ("a",)))) == "TOPIC_NOT_FOUND"
    assert await refused(subscribe(sync("c", "no name"))) == "ILLEGAL_LITE_TOPIC"
    many = [f"t{number}" for number in range(1201)]
    assert await refused(subscribe(sync("c", *many))) == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"


async def test_lite_messages_without_a_lite_topic_are_refused(lite: Ground) -> None:
    assert await refused(lite.backend.send([outgoing("bind", b"x", MessageType.LITE)])) == "ILLEGAL_LITE_TOPIC"
