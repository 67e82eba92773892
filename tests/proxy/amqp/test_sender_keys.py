"""Messages that their sender sends by several routing keys, by pika: the headers CC and BCC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from amqp_ports import AmqpSite, running_amqp
from millstream.model import properties as names
from millstream.model.message import OutgoingMessage
from millstream.model.routing.routes import MAX_FURTHER_KEYS

pika = pytest.importorskip("pika")

from pika import BasicProperties, exceptions  # noqa: E402
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection  # noqa: E402


@pytest.fixture(scope="module", params=["local", "remote"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp"), remote=request.param == "remote") as running:
        yield running


@pytest.fixture
def connection(site: AmqpSite) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def queues(channel: BlockingChannel, *names: str, **more: Any) -> None:
    for name in names:
        channel.queue_declare(name, **more)


def take_all(channel: BlockingChannel, name: str) -> list[tuple[Any, Any, bytes]]:
    """What is in the queue; a confirm says that it is there."""
    found = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        found.append(got)
    return found


def count(channel: BlockingChannel, *names: str) -> list[int]:
    return [len(take_all(channel, name)) for name in names]


def test_a_message_goes_to_the_queues_of_all_its_keys_once_each(channel: BlockingChannel) -> None:
    queues(channel, "own", "cc", "bcc", "other")
    queues(channel, "exclusive", exclusive=True)
    headers = {"CC": ["cc", "own", "exclusive", "nobody"], "BCC": ["bcc", "cc"], "kept": 5}
    channel.basic_publish("", "own", b"body", BasicProperties(headers=headers), mandatory=True)
    for name in ("own", "cc", "bcc", "exclusive"):
        [(method, properties, body)] = take_all(channel, name)
        assert (method.exchange, method.routing_key, body) == ("", "own", b"body")
        # Nobody learns who else got it by BCC.
        assert properties.headers == {"CC": ["cc", "own", "exclusive", "nobody"], "kept": 5}
    assert count(channel, "other") == [0]


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_exchanges_route_by_each_of_the_keys(channel: BlockingChannel, kind: str) -> None:
    channel.exchange_declare(f"copies-{kind}", kind)
    bound = {f"{kind}-{key}": key for key in ("red", "green", "blue")}
    queues(channel, *bound, f"{kind}-all")
    for name, key in bound.items():
        channel.queue_bind(name, f"copies-{kind}", key)
        channel.queue_bind(f"{kind}-all", f"copies-{kind}", key)
    headers = {"CC": ["green", "red"], "BCC": ["grey"]}
    channel.basic_publish(f"copies-{kind}", "red", b"body", BasicProperties(headers=headers))
    assert count(channel, *bound, f"{kind}-all") == [1, 1, 0, 1]


def test_each_exchange_of_a_chain_may_take_another_of_the_keys(channel: BlockingChannel) -> None:
    for name in ("chain-first", "chain-second"):
        channel.exchange_declare(name, "direct")
    channel.exchange_bind("chain-second", "chain-first", "one")
    queues(channel, "chain-two", "chain-three")
    channel.queue_bind("chain-two", "chain-second", "two")
    channel.queue_bind("chain-three", "chain-second", "three")
    channel.basic_publish("chain-first", "one", b"", BasicProperties(headers={"BCC": ["two"]}))
    assert count(channel, "chain-two", "chain-three") == [1, 0]


def test_a_mandatory_message_comes_back_only_where_no_key_has_a_queue(channel: BlockingChannel) -> None:
    queues(channel, "taker")
    channel.basic_publish("", "nobody", b"", BasicProperties(headers={"BCC": ["taker"]}), mandatory=True)
    assert count(channel, "taker") == [1]
    with pytest.raises(exceptions.UnroutableError):
        channel.basic_publish("", "nobody", b"", BasicProperties(headers={"CC": ["none"]}), mandatory=True)


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["taker", 5, {"taker": "x"}, None])
def test_a_header_that_is_no_array_ends_the_channel(channel: BlockingChannel, header: str, value: Any) -> None:
    queues(channel, "taker")
    with pytest.raises(exceptions.ChannelClosedByBroker) as error:
        channel.basic_publish("", "taker", b"", BasicProperties(headers={header: value}))
    assert error.value.reply_code == 406
    assert "unacceptable_type_in_header" in error.value.reply_text
    again = channel.connection.channel()
    assert count(again, "taker") == [0]


@pytest.mark.parametrize("keys", [["k" * 256], ["a\nb"], [f"k{number}" for number in range(MAX_FURTHER_KEYS + 1)]])
def test_keys_that_no_message_can_have_end_the_channel(channel: BlockingChannel, keys: list[str]) -> None:
    with pytest.raises(exceptions.ChannelClosedByBroker) as error:
        channel.basic_publish("amq.topic", "k", b"", BasicProperties(headers={"CC": keys}))
    assert error.value.reply_code == 406


def test_what_is_no_text_in_the_headers_does_not_count(channel: BlockingChannel) -> None:
    queues(channel, "text")
    channel.basic_publish("", "nobody", b"", BasicProperties(headers={"CC": [5, None, "text"]}))
    assert count(channel, "text") == [1]


def test_a_dead_letter_goes_by_all_keys_unless_its_queue_names_one(channel: BlockingChannel) -> None:
    channel.exchange_declare("dead", "direct")
    queues(channel, "dead-own", "dead-cc", "dead-bcc", "dead-named")
    for key in ("own", "cc", "bcc", "named"):
        channel.queue_bind(f"dead-{key}", "dead", key)
    queues(channel, "dies", arguments={"x-dead-letter-exchange": "dead"})
    named = {"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "named"}
    queues(channel, "dies-named", arguments=named)
    channel.exchange_declare("dying", "direct")
    for name in ("dies", "dies-named"):
        channel.queue_bind(name, "dying", "own")
    channel.basic_publish("dying", "own", b"", BasicProperties(headers={"CC": ["cc"], "BCC": ["bcc"]}))

    def let_die(name: str) -> None:
        method, _, _ = channel.basic_get(name)
        channel.basic_reject(method.delivery_tag, requeue=False)

    def wait(name: str) -> Any:
        for _ in channel.consume(name, inactivity_timeout=20):
            channel.cancel()
            return _[1]

    let_die("dies")
    for name in ("dead-own", "dead-cc", "dead-bcc"):
        headers = wait(name).headers
        assert headers["x-death"][0]["routing-keys"] == ["own", "cc"]
        assert (headers["CC"], "BCC" in headers) == (["cc"], False)
    let_die("dies-named")
    assert "CC" not in wait("dead-named").headers


def test_a_property_of_others_that_is_no_list_of_keys_does_not_count(site: AmqpSite, channel: BlockingChannel) -> None:
    channel.exchange_declare("forged", "direct")
    queues(channel, "forged-own", "forged-other")
    channel.queue_bind("forged-own", "forged", "own")
    channel.queue_bind("forged-other", "forged", "other")
    for text in ("[" * 1000, "{}", "7", '["other", 5]'):
        held = {"amqp_rk": "own", "amqp_exchange": "forged", names.AMQP_KEYS: text}
        site.run(site.backend.send([OutgoingMessage("forged", b"x", held)]))
    assert count(channel, "forged-own", "forged-other") == [4, 1]
