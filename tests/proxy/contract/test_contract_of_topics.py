"""What backends do with topics that a proxy makes for its clients, and with those in which it keeps its own state."""

from __future__ import annotations

from contract_ground import Ground, outgoing, refused, state_record

from millstream.model.filter import ALL
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.state_topics import AMQP_TOPIC, MQTT_SESSIONS_TOPIC
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.protocol.record import decode_record

BROKER = "broker-a"


async def test_the_brokers_are_told_by_name(ground: Ground) -> None:
    assert await ground.backend.brokers() == [BROKER]


async def test_a_declared_topic_can_be_used_at_once_and_declared_again(ground: Ground) -> None:
    config = TopicConfig("shop", MessageType.FIFO, 3, 3)
    await ground.backend.declare_topic(config)
    route = await ground.backend.route("shop")
    assert (route.message_type, len(route.queues), route.is_static) == (MessageType.FIFO, 3, False)
    assert ground.broker.topics.get("shop") == config
    await ground.backend.declare_topic(config)
    await ground.backend.send([outgoing("shop", b"x", MessageType.FIFO, __SHARDINGKEY="g")])


async def test_declarations_that_cannot_be_are_refused_by_name(ground: Ground) -> None:
    await ground.backend.declare_topic(TopicConfig("shop"))
    assert await refused(ground.backend.declare_topic(TopicConfig("shop", read_queues=9))) == "TOPIC_EXISTS"
    assert await refused(ground.backend.declare_topic(TopicConfig("no name"))) == "ILLEGAL_TOPIC"
    assert await refused(ground.backend.declare_topic(TopicConfig(AMQP_TOPIC))) == "ILLEGAL_TOPIC"
    assert await refused(ground.backend.declare_topic(TopicConfig("TBW102"))) == "ILLEGAL_TOPIC"


async def test_a_removed_topic_is_gone_with_its_messages(ground: Ground) -> None:
    await ground.backend.declare_topic(TopicConfig("shop"))
    await ground.send("shop", b"x")
    await ground.backend.remove_topic("shop")
    assert await refused(ground.backend.route("shop")) == "TOPIC_NOT_FOUND"
    assert await refused(ground.backend.remove_topic("shop")) == "TOPIC_NOT_FOUND"
    await ground.backend.declare_topic(TopicConfig("shop"))
    assert await ground.pop("shop") == []


async def test_the_systems_own_topics_cannot_be_removed(ground: Ground) -> None:
    await ground.backend.store_state(BROKER, [state_record(AMQP_TOPIC, "k", b"v")])
    assert await refused(ground.backend.remove_topic(AMQP_TOPIC)) == "ILLEGAL_TOPIC"
    assert await refused(ground.backend.remove_topic("no name")) == "ILLEGAL_TOPIC"


async def test_a_state_topic_is_made_at_its_first_record_and_keeps_their_order(ground: Ground) -> None:
    records = [state_record(MQTT_SESSIONS_TOPIC, key, body) for key, body in (("a", b"1"), ("b", b"2"), ("a", b""))]
    receipts = await ground.backend.store_state(BROKER, records)
    assert [(one.broker_name, one.queue_id, one.queue_offset) for one in receipts] == [
        (BROKER, 0, 0), (BROKER, 0, 1), (BROKER, 0, 2),
    ]  # fmt: skip
    (again,) = await ground.backend.store_state(BROKER, records[:1])
    assert again.queue_offset == 3
    config = ground.broker.topics.get(MQTT_SESSIONS_TOPIC)
    assert (config.is_compacted, config.permission) == (True, Permission.READ)
    result = await ground.backend.pull(BROKER, PullRequest("g", MQTT_SESSIONS_TOPIC, 0, 0, filter=ALL))
    assert (result.status, result.next_offset) == (PullStatus.FOUND, 4)
    found = [decode_record(record) for record in result.records]
    assert [(one.keys, one.body) for one in found] == [(("a",), b"1"), (("b",), b"2"), (("a",), b""), (("a",), b"1")]


async def test_clients_cannot_send_to_a_state_topic(ground: Ground) -> None:
    await ground.backend.store_state(BROKER, [state_record(AMQP_TOPIC, "k", b"v")])
    assert await refused(ground.backend.send([outgoing(AMQP_TOPIC, b"x", KEYS="k")])) in ("ILLEGAL_TOPIC", "FORBIDDEN")


async def test_records_of_state_that_cannot_be_are_refused_by_name(ground: Ground) -> None:
    store = ground.backend.store_state
    assert await refused(store(BROKER, [outgoing("orders", b"x", KEYS="k")])) == "ILLEGAL_TOPIC"
    assert await refused(store("broker-z", [state_record(AMQP_TOPIC, "k", b"v")])) == "QUEUE_NOT_FOUND"
    assert await refused(store(BROKER, [outgoing(AMQP_TOPIC, b"x")])) == "ILLEGAL_KEY"
    mixed = [state_record(AMQP_TOPIC, "k", b"v"), outgoing("orders", b"x", KEYS="k")]
    assert await refused(store(BROKER, mixed)) == "MESSAGE_MALFORMED"
